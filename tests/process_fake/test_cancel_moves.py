"""Cancel requests for tasks that move: to another start, lease or process, or into the offset store."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.test_outages_of_stores_and_coordinators import Store
from tests.process_fake.world import GROUP, REQUESTS, STATES, World
from worker.codec import CANCELLED, OK
from worker.core.model import Verdict
from worker.core.task_state import CANCELLING, Origin, TaskState
from worker.state.records import encode_state, state_key

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


@GUARANTEES
def test_a_cancelled_task_that_is_then_detached_is_not_started_again(world: World, guarantee: str) -> None:
    options: dict[str, Any] = {"state_topic": STATES, "long_after": 60.0, "guarantee": guarantee, "hold": 1_000.0}
    world.request("long", work=Work(900.0, obeys=600.0))
    holder = world.process(**options)
    world.run(5)
    world.cancel(0)
    world.run(2)
    assert not world.table.cancels, "it was reached"
    state = world.state(0)
    assert state is not None
    assert state.state == CANCELLING
    owner = world.process(**options)
    world.move(0, owner)
    world.run(10)
    assert 0 in owner.owned
    assert holder.counter("detached_total") == 1
    world.crash(holder)
    world.until(lambda: world.committed() == 1)
    assert {answer.outcome for answer in world.answers()} == {CANCELLED}
    assert owner.starts == []


@GUARANTEES
def test_a_request_whose_old_start_still_runs_is_cancelled_once(world: World, guarantee: str) -> None:
    """The partition was lost and came back. The start under the old lease has not ended yet."""
    world.request("long", work=Work(300.0, obeys=4.0))
    process = world.process(state_topic=STATES, long_after=60.0, guarantee=guarantee)
    world.until(lambda: process.starts)
    world.run(3)
    world.broker.group(GROUP).leave(process.consumer)
    world.until(lambda: process.service.cancelled, seconds=20)
    world.until(lambda: process.owned == [0, 1], seconds=3)
    running = process.service.running
    assert running is not None
    assert not running.task.claim.valid
    world.cancel(0)
    world.until(world.answers)
    world.run(5)
    assert [answer.outcome for answer in world.answers()] == [CANCELLED]
    assert len(process.starts) == 1


def test_a_process_learns_of_a_cancellation_when_the_states_are_available_again(world: World) -> None:
    """The state says that the task was asked to stop. The process reads it while the request runs again."""
    origin = Origin(REQUESTS, 0, 0)
    world.request("long", work=Work(300.0, obeys=1.0))
    left = TaskState(origin, "host-9", 1, 1, 1, state=CANCELLING)
    world.write_state(state_key(origin), encode_state(left), origin)
    process = world.process(state_topic=STATES, long_after=60.0)
    assert process.states is not None
    process.states.away = True
    world.until(lambda: process.starts)
    world.run(2)
    process.states.away = False
    world.until(world.answers)
    assert [answer.outcome for answer in world.answers()] == [CANCELLED]


@pytest.mark.parametrize("quick", [0, 60])
def test_a_cancelled_request_with_an_offset_store_never_starts(world: World, quick: int) -> None:
    store = Store()
    process = world.process(store=store, offset_store="module:store", state_topic=STATES)
    if quick:
        world.quick(count=quick)
        world.until(lambda: len(world.answers()) == quick)
    world.request("long", work=Work(20.0))
    world.request("next", work=Work(5.0))
    world.request("last", work=Work(0.1))
    world.until(lambda: (0, quick, 1) in process.starts)
    world.run(1)
    world.cancel(quick + 1)
    world.until(lambda: len(world.answers()) == quick + 3)
    assert (0, quick + 1, 1) not in process.starts
    assert [answer.outcome for answer in world.answers()][-3:] == [OK, CANCELLED, OK]


def test_a_request_that_another_process_has_answered_is_not_answered_as_cancelled(world: World) -> None:
    """When the attempt ends, the process learns from the store that the request is answered."""
    store = Store()
    world.request("long", work=Work(20.0, Verdict.DONE, obeys=None))
    process = world.process(store=store, offset_store="module:store", state_topic=STATES)
    world.until(lambda: process.starts)
    world.run(1)
    world.cancel(0)
    world.until(lambda: world.committed() == 1)
    assert world.answers() == []
