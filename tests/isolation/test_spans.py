"""Tracing of tasks that run in child processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opentelemetry.trace import StatusCode

from tests.spans import PARENT, TRACE, Traced

if TYPE_CHECKING:
    from tests.isolation.rig import Rig


def test_children_need_no_tracer(rig: Rig) -> None:
    """The parent creates the spans from the outcomes, also the span of a child that has died."""
    traced = Traced()
    traced.spans.record(rig.run("ok", "segfault", headers=PARENT))
    good, dead = traced.finished()
    assert {f"{span.context.trace_id:032x}" for span in (good, dead)} == {TRACE}
    for span in (good, dead):
        assert span.start_time is not None
        assert span.end_time is not None
        assert 0 < span.start_time < span.end_time
    assert (good.status.status_code, dead.status.status_code) == (StatusCode.UNSET, StatusCode.ERROR)
    assert dict(dead.attributes or {})["error.type"] == "ProcessDied"
