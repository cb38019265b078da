"""Cancel requests: the cancelled request is answered once in every state, and the cancel request is removed."""

from __future__ import annotations

import functools
import random
from typing import TYPE_CHECKING

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import STATES, World
from worker.codec import CANCELLED, OK
from worker.errors import ExitCode
from worker.process.status_block import Command

if TYPE_CHECKING:
    from tests.process_fake.world import Process

GUARANTEES = ["at-least-once", "at-most-once", "exactly-once"]
ORDERINGS = ["partition", "key", "unordered"]
RACES = 1_000


def start(world: World, **options: object) -> Process:
    options = {"state_topic": STATES, "long_after": 60.0, "retry_first": 30.0} | options
    return world.process(**options)  # type: ignore[arg-type]


def outcomes(world: World) -> dict[int, int]:
    """Return the outcome of each offset of partition 0. Fail if an offset was answered twice."""
    found = [(answer.origin.offset, answer.outcome) for answer in world.answers() if answer.origin.partition == 0]
    assert len(dict(found)) == len(found), found
    return dict(found)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_cancelled_request_in_a_queue_never_starts(world: World, guarantee: str, ordering: str) -> None:
    """Its answer comes while the long task before it runs. For at-most-once see test_cancel_once.py."""
    world.request("long", work=Work(300.0), key=b"a")
    for at in range(1, 4):
        world.request(f"next-{at}", work=Work(0.1), key=b"ab"[at % 2 : at % 2 + 1])
    process = start(world, guarantee=guarantee, ordering=ordering)
    world.run(5)
    world.cancel(2)
    world.until(lambda: outcomes(world) == {2: CANCELLED}, seconds=5)
    world.until(lambda: not world.table.cancels, seconds=5)
    world.until(lambda: len(outcomes(world)) == 4)
    assert outcomes(world) == {0: OK, 1: OK, 2: CANCELLED, 3: OK}
    assert sorted(offset for _, offset, _ in process.starts) == [0, 1, 3]
    assert process.counter("cancel_requests_total", "queued") == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_cancel_request_waits_for_a_request_that_does_not_exist_yet(world: World, guarantee: str) -> None:
    """The cancel request stays on the state topic until the request has come."""
    process = start(world, guarantee=guarantee)
    world.run(2)
    world.cancel(1)
    world.run(5)
    assert world.table.cancels
    world.request("first", work=Work(1.0))
    world.request("second", work=Work(1.0))
    world.until(lambda: outcomes(world) == {0: OK, 1: CANCELLED})
    world.until(lambda: not world.table.cancels, seconds=5)
    assert process.starts == [(0, 0, 1)]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_cancelled_task_that_runs_is_asked_to_stop(world: World, guarantee: str) -> None:
    """No attempt and no dead letter follow. The request behind the task starts."""
    world.request("long", work=Work(300.0, obeys=2.0))
    world.request("next", work=Work(0.1))
    process = start(world, guarantee=guarantee, max_attempts=3)
    world.run(5)
    world.cancel(0)
    world.run(0.5)
    assert (state := world.state(0)) is not None
    assert state.state == "cancelling"
    assert not world.table.cancels, "it was reached"
    assert process.service.cancelled[0][1] == "requested"
    world.until(lambda: outcomes(world) == {0: CANCELLED, 1: OK})
    world.run(1)
    assert world.state(0) is None
    assert world.dead_letters() == []
    assert process.starts == [(0, 0, 1), (0, 1, 1)]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_cancelled_request_is_answered_as_cancelled_although_its_handler_returns(
    world: World, guarantee: str
) -> None:
    world.request("deaf", work=Work(20.0, obeys=None))
    start(world, guarantee=guarantee)
    world.run(5)
    world.cancel(0)
    world.until(lambda: outcomes(world) == {0: CANCELLED})
    world.until(lambda: not world.table.cancels, seconds=5)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_cancelled_task_between_two_attempts_is_not_started_again(
    world: World, guarantee: str, ordering: str
) -> None:
    """It waits for its next attempt. The requests behind it no longer wait for that attempt."""
    world.request("flaky", work=failing(1.0), key=b"a")
    world.request("next", work=Work(0.1), key=b"a")
    process = start(world, guarantee=guarantee, ordering=ordering)
    world.run(5)
    world.cancel(0)
    world.until(lambda: outcomes(world) == {0: CANCELLED, 1: OK}, seconds=5)
    assert [start for start in process.starts if start[1] == 0] == [(0, 0, 1)]
    world.until(lambda: not world.table.cancels, seconds=5)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_cancel_request_for_an_answered_request_is_removed_at_once(world: World, guarantee: str) -> None:
    """A second cancel request is removed as well: cancelling is idempotent."""
    world.request("done", work=Work(0.1))
    process = start(world, guarantee=guarantee)
    world.until(lambda: outcomes(world) == {0: OK})
    world.run(1)
    for _ in range(2):
        world.cancel(0)
        world.until(lambda: not world.table.cancels, seconds=5)
    world.leave(process)
    world.cancel(0)
    start(world, guarantee=guarantee)
    world.until(lambda: not world.table.cancels, seconds=10)
    assert outcomes(world) == {0: OK}


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_cancelled_task_whose_process_dies_is_not_started_again(world: World, guarantee: str) -> None:
    """The cancel request is gone by then. The state of the task says that it was cancelled."""
    world.request("long", work=Work(300.0, obeys=60.0))
    first = start(world, guarantee=guarantee)
    world.run(5)
    world.cancel(0)
    world.run(1)
    world.crash(first)
    second = start(world, guarantee=guarantee)
    world.until(lambda: outcomes(world) == {0: CANCELLED})
    assert second.starts == []
    world.until(lambda: world.state(0) is None, seconds=5)


def lose(world: World, process: Process) -> None:
    """Kill the process, and let the group give its partitions away. From then on commits are fast."""
    world.crash(process)
    world.broker.commit_delay = 0.001


def given_outcomes(world: World, offset: int) -> set[int]:
    """Return the outcomes of all answers to this request."""
    return {answer.outcome for answer in world.answers() if answer.origin.offset == offset}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_cancelled_request_whose_answer_is_not_committed_is_not_started(world: World, ordering: str) -> None:
    """The next owner does not know of the answer, so the cancel request must still exist."""
    world.request("long", work=Work(300.0))
    world.request("next", work=Work(0.1))
    first = start(world, ordering=ordering)
    world.run(5)
    world.broker.commit_delay = 30.0
    world.cancel(1)
    world.until(lambda: outcomes(world) == {1: CANCELLED}, seconds=5)
    world.run(1)
    assert world.table.cancels
    lose(world, first)
    second = start(world, ordering=ordering)
    world.until(lambda: given_outcomes(world, 0) == {OK})
    world.until(lambda: not world.table.cancels, seconds=10)
    assert given_outcomes(world, 1) == {CANCELLED}
    assert [offset for _, offset, _ in second.starts] == [0]


@pytest.mark.parametrize("long_after", [1.0, 60.0])
def test_a_cancelled_task_whose_answer_is_not_committed_is_not_started_again(world: World, long_after: float) -> None:
    """The cancel request is gone by then, so the state of the task must still exist."""
    world.request("long", work=Work(300.0, obeys=0.5))
    first = start(world, long_after=long_after)
    world.run(5)
    world.broker.commit_delay = 30.0
    world.cancel(0)
    world.until(lambda: outcomes(world) == {0: CANCELLED}, seconds=5)
    world.run(1)
    assert not world.table.cancels
    lose(world, first)
    second = start(world)
    world.until(lambda: world.committed() == 1)
    world.until(lambda: world.state(0) is None, seconds=5)
    assert given_outcomes(world, 0) == {CANCELLED}
    assert second.starts == []


def test_a_commit_covers_a_cancelled_request_behind_an_unanswered_one(world: World) -> None:
    """The commit metadata say that the request is answered, although the committed offset is below it."""
    world.request("long", work=Work(300.0))
    world.request("next", work=Work(0.1))
    first = start(world, ordering="unordered", commit_interval=1.0)
    world.run(5)
    world.broker.commit_delay = 10.0
    world.cancel(1)
    world.run(9)
    assert world.table.cancels, "the commit is under way"
    world.until(lambda: not world.table.cancels, seconds=20)
    assert world.committed() is None, "nothing before it is answered"
    lose(world, first)
    second = start(world, ordering="unordered")
    world.until(lambda: outcomes(world) == {0: OK, 1: CANCELLED})
    assert [offset for _, offset, _ in second.starts] == [0]


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_the_next_owner_removes_cancel_requests_and_states_of_a_dead_process(world: World, ordering: str) -> None:
    """The process dies after the commit that covers the requests, and before the tombstones."""
    world.request("cancelled while it ran", work=Work(300.0, obeys=0.5), key=b"a")
    world.request("long", work=Work(300.0), key=b"b")
    world.request("cancelled while it waited", work=Work(0.1), key=b"c")
    first = start(world, ordering=ordering)
    world.run(5)
    world.broker.commit_delay = 5.0
    world.cancel(0)
    world.cancel(2)
    world.until(lambda: outcomes(world) == {0: CANCELLED, 2: CANCELLED}, seconds=5)
    assert first.states is not None
    first.states.write = lambda *_: None  # type: ignore[method-assign]
    world.run(30)
    assert world.committed() == 1
    assert world.table.cancels
    assert world.state(0) is not None
    lose(world, first)
    second = start(world, ordering=ordering)
    world.until(lambda: not world.table.cancels and world.state(0) is None, seconds=10)
    world.until(lambda: outcomes(world) == {0: CANCELLED, 1: OK, 2: CANCELLED})
    assert [offset for _, offset, _ in second.starts] == [1]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_drain_leaves_no_state_of_a_cancelled_task(world: World, guarantee: str) -> None:
    """The process removes the state after its last commit, and waits for nothing else."""
    world.request("long", work=Work(300.0, obeys=1.0))
    process = start(world, guarantee=guarantee)
    world.run(5)
    world.broker.commit_delay = 3.0
    world.cancel(0)
    world.run(0.5)
    process.order(Command.DRAIN)
    world.until(lambda: process.exit_code is not None, seconds=20)
    assert process.exit_code is ExitCode.DRAINED
    assert (world.committed(), world.state(0)) == (1, None)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_many_cancelled_requests_behind_a_long_task_are_answered(world: World, guarantee: str) -> None:
    """Every second one of 200 requests is cancelled. The commit metadata have room for them."""
    world.request("long", work=Work(120.0))
    for at in range(200):
        world.request(f"next-{at % 2}", work=Work(0.001))
    process = start(world, guarantee=guarantee)
    world.run(5)
    for offset in range(1, 201, 2):
        world.cancel(offset)
    world.until(lambda: len(outcomes(world)) == 201)
    assert all(outcome == (CANCELLED if offset % 2 else OK) for offset, outcome in outcomes(world).items())
    world.until(lambda: not world.table.cancels, seconds=20)
    assert process.error is None


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_cancelled_request_is_not_given_to_the_executor_again(world: World, ordering: str) -> None:
    """The executor has it already, behind a task that takes longer than expected."""
    process = start(world, ordering=ordering)
    for _ in range(30):
        world.request("quick", work=Work(0.01))
    world.until(lambda: len(world.answers()) == 30)
    world.request("slow", work=Work(20.0))
    for _ in range(3):
        world.request("next", work=Work(0.01))
    world.until(lambda: (0, 30, 1) in process.starts)
    world.run(1)
    assert process.service._tasks, "some wait in the executor"
    world.cancel(process.service._tasks[0].offset)
    world.until(lambda: len(world.answers()) == 31, seconds=5)
    assert world.answers()[-1].outcome == CANCELLED


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_race_against_the_end(world: World, guarantee: str) -> None:
    """Each of 1,000 requests is cancelled about when it ends. Each has one answer, and no record is left behind."""
    random.seed(7)
    process = start(world, guarantee=guarantee, ordering="unordered", long_after=0.05)
    for at in range(RACES // 10):
        offsets = [world.request(f"{at}", work=Work(0.01 + random.random() / 20)) for _ in range(10)]
        for offset in offsets:
            world.clock.after(random.random() * 0.6, functools.partial(world.cancel, offset))
        world.run(0.6)
    world.until(lambda: len(outcomes(world)) == RACES, seconds=60)
    world.until(lambda: not (world.table.cancels or world.table.states), seconds=20)
    found = list(outcomes(world).values())
    assert set(found) == {OK, CANCELLED}
    assert min(found.count(OK), found.count(CANCELLED)) > RACES // 20
    starts = [start[1] for start in process.starts]
    assert len(set(starts)) == len(starts), "no cancelled task was started again"


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_cancel_request_during_a_drain_cancels_the_running_task(world: World, guarantee: str) -> None:
    world.request("long", work=Work(300.0, obeys=1.0))
    process = start(world, guarantee=guarantee)
    world.run(5)
    process.order(Command.DRAIN)
    world.run(1)
    world.cancel(0)
    world.until(lambda: process.exit_code is not None)
    assert outcomes(world) == {0: CANCELLED}
