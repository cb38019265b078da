"""The spans that a worker process records of its tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.process_fake.stand_ins import Work, failing
from tests.spans import PARENT, TRACE, Traced

if TYPE_CHECKING:
    from tests.process_fake.world import World


def test_each_attempt_is_a_span_of_the_trace_that_sent_the_request(world: World) -> None:
    traced = Traced()
    world.request("flaky", work=[failing(1.0), Work(2.0)], headers=PARENT)
    world.process(spans=traced.spans)
    world.until(lambda: world.committed() == 1)
    first, second = traced.finished()
    assert {f"{span.context.trace_id:032x}" for span in (first, second)} == {TRACE}
    assert [dict(span.attributes or {})["worker.attempt"] for span in (first, second)] == [1, 2]
    assert [link.context for link in second.links] == [first.context]


def test_an_attempt_that_is_cancelled_is_a_span_too(world: World) -> None:
    """The partition moves, and this process does not learn of the next attempt."""
    traced = Traced()
    world.request("long", work=Work(1e9))
    process = world.process(hold=1.0, spans=traced.spans)
    world.until(lambda: process.starts)
    rival = world.rival()
    world.move(0, rival)
    world.until(lambda: 0 in rival.owned)
    (span,) = traced.finished()
    assert dict(span.attributes or {})["worker.verdict"] == "dropped"
