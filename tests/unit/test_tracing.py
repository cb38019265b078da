"""A span per attempt, with OpenTelemetry's in-memory exporter."""

from __future__ import annotations

import subprocess
import sys
import threading
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode
from structlog.processors import CallsiteParameter, CallsiteParameterAdder
from structlog.testing import capture_logs

from tests.spans import PARENT, TRACE, Traced
from tests.unit.support import a_task
from worker.core.model import Failure, Outcome, Verdict
from worker.process import tracing
from worker.process.tracing import exporter_name, from_environment, wanted

if TYPE_CHECKING:
    from structlog.typing import EventDict

WITH_THREAD = [CallsiteParameterAdder([CallsiteParameter.THREAD])]
OTLP = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://collector:4318"}


def test_a_span_has_the_times_and_the_identity_of_its_attempt() -> None:
    span = Traced().attempt(a_task(offset=42))
    assert (span.name, span.kind) == ("process requests", SpanKind.CONSUMER)
    assert (span.start_time, span.end_time) == (5_000_000_000, 6_500_000_000)
    attributes = dict(span.attributes or {})
    assert attributes["messaging.kafka.offset"] == 42
    assert attributes["messaging.destination.partition.id"] == "3"
    assert attributes["messaging.kafka.message.key"] == "k"
    assert (attributes["worker.attempt"], attributes["worker.verdict"]) == (1, "ok")
    assert span.status.status_code is StatusCode.UNSET
    assert span.parent is None


def test_the_request_names_the_parent_of_the_span() -> None:
    span = Traced().attempt(a_task(headers=PARENT))
    assert span.parent is not None
    assert span.parent.span_id == 0xB7AD6B7169203331
    assert f"{span.context.trace_id:032x}" == TRACE


@pytest.mark.parametrize("value", [b"nonsense", b"", None, b"\xff\xfe"])
def test_an_invalid_parent_begins_a_new_trace(value: bytes | None) -> None:
    assert Traced().attempt(a_task(headers=(("traceparent", value),))).parent is None


def test_a_retry_is_linked_to_the_former_attempt() -> None:
    traced, task = Traced(), a_task(headers=PARENT)
    first = traced.attempt(task, Verdict.FAILED, failure=Failure("OSError", "no disk", "Traceback ..."))
    second = traced.attempt(task)
    assert first.links == ()
    (link,) = second.links
    assert link.context == first.context
    assert second.parent == first.parent, "both are children of whoever sent the request"
    assert first.status.status_code is StatusCode.ERROR
    assert (first.status.description, dict(first.attributes or {})["error.type"]) == ("no disk", "OSError")
    (event,) = first.events
    assert (event.name, dict(event.attributes or {})["exception.stacktrace"]) == ("exception", "Traceback ...")


def test_a_task_that_never_started_has_no_span() -> None:
    traced = Traced()
    traced.spans.record([Outcome(a_task(), Verdict.NOT_STARTED), Outcome(a_task(), Verdict.EXPIRED)])
    assert traced.finished() == ()


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({}, False),
        ({"OTEL_SERVICE_NAME": "renders"}, False),
        (OTLP, True),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://collector:4318/v1/traces"}, True),
        ({"OTEL_TRACES_EXPORTER": "console"}, True),
        ({**OTLP, "OTEL_TRACES_EXPORTER": "none"}, False),
        ({**OTLP, "OTEL_SDK_DISABLED": "true"}, False),
    ],
)
def test_the_standard_variables_turn_tracing_on_or_off(environment: dict[str, str], *, expected: bool) -> None:
    assert wanted(environment) is expected


@pytest.mark.parametrize(
    ("environment", "name"),
    [
        (OTLP, "otlp_proto_http"),
        ({**OTLP, "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "otlp_proto_grpc"),
        ({"OTEL_TRACES_EXPORTER": "console"}, "console"),
    ],
)
def test_the_exporter_is_found_by_its_standard_name(environment: dict[str, str], name: str) -> None:
    assert exporter_name(environment) == name


def logged_here(lines: list[EventDict]) -> list[EventDict]:
    """Return the lines of this thread. The clients of other tests may log at the same time."""
    return [line for line in lines if line["thread"] == threading.get_ident()]


def test_a_missing_exporter_is_logged_and_the_worker_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "nowhere")
    with capture_logs(WITH_THREAD) as lines:
        assert from_environment("workers") is None
    (line,) = logged_here(lines)
    assert (line["event"], "pip install" in line["reason"]) == ("tracing.unavailable", True)


def test_a_missing_opentelemetry_package_is_logged_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace", None)
    with capture_logs(WITH_THREAD) as lines:
        assert from_environment("workers") is None
    assert [line["event"] for line in logged_here(lines)] == ["tracing.unavailable"]


def test_without_configuration_opentelemetry_is_not_imported() -> None:
    """No package is loaded, and the main loop has no tracer."""
    code = (
        "import sys; from worker.process import main, tracing; assert tracing.from_environment('g') is None; "
        "print([name for name in sys.modules if name.startswith('opentelemetry')])"
    )
    environment = {"PYTHONPATH": ":".join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.strip() == "[]"


def test_spans_are_exported_before_the_process_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker process ends with ``os._exit``, so no exit handler flushes them."""
    exporter = InMemorySpanExporter()
    found = SimpleNamespace(load=lambda: lambda: exporter)
    monkeypatch.setattr(tracing, "entry_points", lambda **_: [found])
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "otlp")
    monkeypatch.setenv("OTEL_SERVICE_NAME", "renders")
    spans = from_environment("workers")
    assert spans is not None
    spans.record([Outcome(a_task(attempt=1), Verdict.OK, 7, 5, finished_ns=6)])
    spans.close()
    (span,) = exporter.get_finished_spans()
    assert span.resource.attributes["service.name"] == "renders"
