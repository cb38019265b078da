"""An offset store skips a request without a result only when all before it are done and none behind it runs."""

from __future__ import annotations

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.test_outages_of_stores_and_coordinators import Store
from tests.process_fake.world import STATES, World
from worker.codec import CANCELLED, DEAD_LETTERED, OK
from worker.core.model import Verdict
from worker.core.task_state import CANCELLING
from worker.process.status_block import Command


def test_no_task_starts_while_a_request_without_a_result_is_not_settled(world: World) -> None:
    """A later result would move the store past that request. After a crash no process would answer it."""
    store = Store()
    process = world.process(store=store)
    world.until(lambda: len(process.owned) == 2)
    store.down = True
    world.raw(b"no request")
    world.request("next")
    world.run(30)
    assert (process.starts, store.skipped) == ([], [])
    store.down = False
    world.until(lambda: len(world.answers()) == 2)
    assert [answer.outcome for answer in world.answers()] == [DEAD_LETTERED, OK]
    assert (process.starts, store.skipped) == ([(0, 1, 1)], [0])


def test_a_drain_waits_until_a_request_without_a_result_is_settled(world: World) -> None:
    """Otherwise the request would run again."""
    store = Store()
    process = world.process(store=store)
    world.until(lambda: len(process.owned) == 2)
    store.down = True
    world.raw(b"no request")
    world.run(5)
    process.order(Command.DRAIN)
    world.run(3)
    assert process.exit_code is None
    store.down = False
    world.until(lambda: process.exit_code == 0)
    assert store.skipped == [0]


def test_a_cancelled_request_waits_for_its_turn(world: World) -> None:
    """The requests before it have no result in the store yet."""
    store = Store()
    process = world.process(store=store, offset_store="module:store", state_topic=STATES)
    world.request("long", work=Work(20.0))
    for _ in range(3):
        world.request("next", work=Work(1.0))
    world.until(lambda: process.starts)
    world.cancel(3)
    world.run(10)
    assert store.skipped == []
    world.until(lambda: len(world.answers()) == 4)
    assert [answer.outcome for answer in world.answers()] == [OK, OK, OK, CANCELLED]
    world.until(lambda: store.skipped == [3], seconds=5)


@pytest.mark.parametrize("cancel_after", [0.5, 3.0], ids=["during the attempt", "before the next attempt"])
def test_a_request_that_may_be_stored_is_not_answered_as_cancelled(world: World, cancel_after: float) -> None:
    """The store did not reply to the commit. The next attempt finds the result."""
    unknown = Work(1.0, Verdict.FAILED, retry_after=5.0, error="StoreUnavailable", obeys=None)
    process = world.process(store=Store(), offset_store="module:store", state_topic=STATES)
    world.request("long", work=[unknown, Work(result=b"stored")])
    world.until(lambda: process.starts)
    world.run(cancel_after)
    world.cancel(0)
    world.until(world.answers)
    assert [(answer.outcome, answer.result) for answer in world.answers()] == [(OK, b"stored")]


def test_the_next_attempt_of_a_cancelled_request_that_was_not_stored_is_cancelled(world: World) -> None:
    """The topic says that the task was asked to stop, so the cancel request is gone."""
    unknown = Work(3.0, Verdict.FAILED, retry_after=5.0, error="StoreUnavailable", obeys=None)
    process = world.process(store=Store(), offset_store="module:store", state_topic=STATES)
    world.request("long", work=[unknown, Work(500.0)])
    world.until(lambda: process.starts)
    world.cancel(0)
    world.run(5)
    assert not world.table.cancels
    state = world.state(0)
    assert state is not None
    assert state.state == CANCELLING, "the next owner would answer it"
    world.until(world.answers, seconds=20)
    assert process.starts == [(0, 0, 1), (0, 0, 2)]
    assert [answer.outcome for answer in world.answers()] == [CANCELLED]
