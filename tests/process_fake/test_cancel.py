"""Requests to cancel: wherever the request is, it is answered once, and the cancel request is removed."""

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
    """The outcome of each offset of partition 0; an offset that was answered twice fails."""
    found = [(answer.origin.offset, answer.outcome) for answer in world.answers() if answer.origin.partition == 0]
    assert len(dict(found)) == len(found), found
    return dict(found)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_queued_request_is_never_started(world: World, guarantee: str, ordering: str) -> None:
    """It is answered at once, although a long task runs before it. For at-most-once see test_cancel_once.py."""
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
def test_a_request_that_is_not_there_yet(world: World, guarantee: str) -> None:
    """The cancel request waits for it."""
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
def test_a_running_task_is_asked_to_stop(world: World, guarantee: str) -> None:
    """No attempt follows, and no dead letter; those behind it go on."""
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
def test_a_cancelled_request_is_answered_as_such_whatever_its_handler_returns(world: World, guarantee: str) -> None:
    world.request("deaf", work=Work(20.0, obeys=None))
    start(world, guarantee=guarantee)
    world.run(5)
    world.cancel(0)
    world.until(lambda: outcomes(world) == {0: CANCELLED})
    world.until(lambda: not world.table.cancels, seconds=5)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_task_between_two_attempts(world: World, guarantee: str, ordering: str) -> None:
    """It waits for its next attempt; those behind it need not wait for that any more."""
    world.request("flaky", work=failing(1.0), key=b"a")
    world.request("next", work=Work(0.1), key=b"a")
    process = start(world, guarantee=guarantee, ordering=ordering)
    world.run(5)
    world.cancel(0)
    world.until(lambda: outcomes(world) == {0: CANCELLED, 1: OK}, seconds=5)
    assert [start for start in process.starts if start[1] == 0] == [(0, 0, 1)]
    world.until(lambda: not world.table.cancels, seconds=5)


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_an_answered_request_is_reached_at_once(world: World, guarantee: str) -> None:
    """The second time, too: cancelling is idempotent."""
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
    """Its cancel request is gone by then; its state says it."""
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
    """The process dies, and the group gives its partitions away. From now on commits are fast."""
    world.crash(process)
    world.broker.commit_delay = 0.001


def given_outcomes(world: World, offset: int) -> set[int]:
    """The outcomes in all answers to this request."""
    return {answer.outcome for answer in world.answers() if answer.origin.offset == offset}


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_cancelled_request_whose_answer_is_not_committed_is_not_started(world: World, ordering: str) -> None:
    """The next owner knows nothing of the answer, so the cancel request must still be there."""
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
    """Its cancel request is gone by then, so its state must still be there."""
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
    """Its metadata say so, although the committed offset lies before the request."""
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
def test_what_a_dead_process_left_of_a_covered_request_is_removed(world: World, ordering: str) -> None:
    """It dies after the commit and before the tombstones."""
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
    """The process removes it after its last commit, and does not wait for anything else."""
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
def test_many_behind_a_long_task(world: World, guarantee: str) -> None:
    """Every other one of two hundred: the commit metadata has room for them."""
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


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_race_against_the_end(world: World, guarantee: str) -> None:
    """A thousand requests, each cancelled about when it ends: one answer each, nothing left behind."""
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
def test_a_cancel_request_during_a_drain(world: World, guarantee: str) -> None:
    world.request("long", work=Work(300.0, obeys=1.0))
    process = start(world, guarantee=guarantee)
    world.run(5)
    process.order(Command.DRAIN)
    world.run(1)
    world.cancel(0)
    world.until(lambda: process.exit_code is not None)
    assert outcomes(world) == {0: CANCELLED}
