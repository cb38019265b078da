"""OpenTelemetry: a span for each attempt, recorded when its outcome has arrived.

The handler may have run on a thread, in a child process, or in a child that was killed: the outcome has the times in
each case. ``AttemptSpans`` exists only if the environment asks for traces and the packages of the extra ``otel`` are
installed. Otherwise the main loop does nothing for tracing.
"""

from __future__ import annotations

import os
import time
from collections import OrderedDict
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any

import structlog

from worker.core.model import Verdict

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from opentelemetry.context import Context
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.trace import Span, SpanContext

    from worker.core.model import Outcome, Record, Task

_ASKING = ("OTEL_TRACES_EXPORTER", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROPAGATED = ("traceparent", "tracestate")
_ATTEMPTED_AGAIN = (Verdict.FAILED, Verdict.DROPPED)
_MOST_REMEMBERED = 10_000  # spans of attempts that another one may follow
FLUSH_MILLISECONDS = 5_000

log = structlog.get_logger("tracing")


def wanted(environment: Mapping[str, str]) -> bool:
    """Return whether the standard ``OTEL_`` variables ask for traces."""
    if environment.get("OTEL_SDK_DISABLED", "").lower() == "true":
        return False
    exporter = environment.get("OTEL_TRACES_EXPORTER", "").lower()
    return exporter != "none" and any(environment.get(name) for name in _ASKING)


def exporter_name(environment: Mapping[str, str]) -> str:
    """Return the entry point of the exporter, as OpenTelemetry's packages name it."""
    name = environment.get("OTEL_TRACES_EXPORTER") or "otlp"
    if name != "otlp":
        return name
    protocol = environment.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or environment.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    return "otlp_proto_grpc" if protocol == "grpc" else "otlp_proto_http"


def from_environment(group: str) -> AttemptSpans | None:
    """Return spans as the ``OTEL_`` variables configure them; None if they ask for none or it is not possible."""
    if not wanted(os.environ):
        return None
    try:
        return AttemptSpans(_provider(), group)
    except (ImportError, LookupError, ValueError) as error:
        log.warning("tracing.unavailable", reason=str(error))
        return None


def _provider() -> TracerProvider:
    """Return a provider. OpenTelemetry itself reads the sampler, resource, limits and batches from the environment."""
    from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - an extra, and not imported without need
    from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415

    name = exporter_name(os.environ)
    found = next(iter(entry_points(group="opentelemetry_traces_exporter", name=name)), None)
    if found is None:
        raise LookupError(
            f"no exporter {name} is installed: pip install opentelemetry-exporter-{name.replace('_', '-')}"
        )
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(found.load()()))
    return provider


class AttemptSpans:
    """Record spans. Used on the poll thread; OpenTelemetry exports them on a separate thread."""

    def __init__(self, provider: TracerProvider, group: str) -> None:
        from opentelemetry import trace  # noqa: PLC0415 - as above
        from opentelemetry.context import Context  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._api = trace
        self._provider = provider
        self._tracer = provider.get_tracer("kafka-task-worker")
        self._propagator = TraceContextTextMapPropagator()
        self._no_parent = Context()
        self._group = group
        self._former: OrderedDict[Task, SpanContext] = OrderedDict()  # of attempts that another one may follow

    def record(self, outcomes: Iterable[Outcome]) -> None:
        """Record a span for each of these attempts. Attempts that never started have none."""
        for outcome in outcomes:
            if outcome.started_ns:
                self._record(outcome)

    def close(self) -> None:
        """Export the remaining spans, within seconds."""
        self._provider.force_flush(FLUSH_MILLISECONDS)
        self._provider.shutdown()

    def _record(self, outcome: Outcome) -> None:
        task, record = outcome.task, outcome.task.record
        former = self._former.pop(task, None)
        span = self._tracer.start_span(
            f"process {record.partition.topic}",
            context=self._parent_of(record),
            kind=self._api.SpanKind.CONSUMER,
            links=[self._api.Link(former, {"worker.link": "former attempt"})] if former is not None else None,
            start_time=outcome.started_ns,
            attributes=self._attributes(outcome),
        )
        ended_ns = outcome.finished_ns or time.time_ns()
        if outcome.verdict is not Verdict.OK:
            self._fail(span, outcome, ended_ns)
        span.end(ended_ns)
        if outcome.verdict in _ATTEMPTED_AGAIN:
            self._remember(task, span.get_span_context())

    def _fail(self, span: Span, outcome: Outcome, ended_ns: int) -> None:
        failure = outcome.failure
        kind, message, traceback = failure if failure is not None else (outcome.verdict.value, "", "")
        span.set_attribute("error.type", kind)
        span.set_status(self._api.StatusCode.ERROR, message)
        event = {"exception.type": kind, "exception.message": message, "exception.stacktrace": traceback}
        span.add_event("exception", event, timestamp=ended_ns)

    def _remember(self, task: Task, span: SpanContext) -> None:
        self._former[task] = span
        if len(self._former) > _MOST_REMEMBERED:
            self._former.popitem(last=False)

    def _parent_of(self, record: Record) -> Context:
        """Return the parent from the request's headers. Without one, the span begins a new trace."""
        carrier = {
            name: (value or b"").decode(errors="replace") for name, value in record.headers if name in _PROPAGATED
        }
        return self._propagator.extract(carrier, self._no_parent)

    def _attributes(self, outcome: Outcome) -> dict[str, Any]:
        task, record = outcome.task, outcome.task.record
        key = (
            {} if record.key is None else {"messaging.kafka.message.key": record.key.decode(errors="backslashreplace")}
        )
        return {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.operation.name": "process",
            "messaging.destination.name": record.partition.topic,
            "messaging.destination.partition.id": str(record.partition.number),
            "messaging.kafka.offset": record.offset,
            "messaging.consumer.group.name": self._group,
            "worker.sequence": outcome.sequence,
            "worker.attempt": task.attempt,
            "worker.verdict": outcome.verdict.value,
            "worker.cpu_seconds": outcome.cpu_seconds,
            **key,
        }
