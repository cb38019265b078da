"""Spans in memory, for the tests of tracing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from worker.core.model import Outcome, Verdict
from worker.process.tracing import AttemptSpans

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

    from worker.core.model import Task

TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = (("traceparent", f"00-{TRACE}-b7ad6b7169203331-01".encode()), ("other", b"\xff"))


class Traced:
    """Spans of attempts, and the exporter that keeps them."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self._exporter))
        self.spans = AttemptSpans(provider, "workers")

    def attempt(self, task: Task, verdict: Verdict = Verdict.OK, **fields: Any) -> ReadableSpan:
        task.attempt += 1
        outcome = Outcome(task, verdict, 7, 5_000_000_000, finished_ns=6_500_000_000, **fields)
        self.spans.record([outcome])
        return self.finished()[-1]

    def finished(self) -> tuple[ReadableSpan, ...]:
        return self._exporter.get_finished_spans()
