"""Cancel requests under at-most-once: a waiting request never starts. Its answer follows a commit that covers it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.test_cancel import ORDERINGS, outcomes
from tests.process_fake.world import STATES, World
from worker.codec import CANCELLED, OK
from worker.core.owned_partition import OwnedPartition
from worker.process.status_block import Command

if TYPE_CHECKING:
    from tests.process_fake.world import Process

BATCHES: dict[str, Any] = {"batch_size": 4, "batch_wait": 2.0}


def start(world: World, **options: Any) -> Process:
    given: dict[str, Any] = {"state_topic": STATES, "long_after": 60.0, "guarantee": "at-most-once", **options}
    return world.process(**given)


def lose(world: World, process: Process) -> None:
    """Kill the process, and let the group give its partitions away."""
    world.crash(process)


def started(*processes: Process) -> list[int]:
    """Return the offsets of partition 0 that these processes started."""
    return sorted(offset for process in processes for number, offset, _ in process.starts if number == 0)


# ---------------------------------------------------------------- before the commit


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_the_next_owner_cancels_a_request_that_no_commit_covers(world: World, ordering: str) -> None:
    """The next owner answers the request, so the former owner must not have answered it before the commit."""
    world.request("long", work=Work(300.0), key=b"a")
    world.request("next", work=Work(0.1), key=b"a")
    world.request("last", work=Work(0.1), key=b"b")
    first = start(world, ordering=ordering)
    world.run(5)
    world.broker.commit_delay = 30.0
    world.cancel(1)
    world.run(5)
    lose(world, first)
    world.broker.commit_delay = 0.001
    second = start(world, ordering=ordering)
    world.run(60)
    assert outcomes(world) == {1: CANCELLED, 2: OK}
    assert started(first, second) == [0, 2]
    assert second.counter("lost_total") == 1, "the long task"
    assert not world.table.cancels


def test_a_cancelled_request_is_not_answered_while_its_commit_fails(world: World) -> None:
    """The process repeats the commit, and answers the request after that."""
    process = start(world)
    world.run(2)
    world.broker.fail_commits("COORDINATOR_LOAD_IN_PROGRESS", 8)
    world.cancel(0)
    world.run(1)
    world.request("cancelled", work=Work(1.0))
    world.run(1)
    assert process.counter("commit_failures_total", "COORDINATOR_LOAD_IN_PROGRESS") > 0
    assert outcomes(world) == {}
    world.until(lambda: outcomes(world) == {0: CANCELLED}, seconds=10)
    assert process.starts == []


def test_a_drain_takes_back_the_recorded_starts_of_waiting_tasks(world: World) -> None:
    """So the next owner cancels the request, although its start was recorded before the drain."""
    first = start(world)
    world.run(2)
    world.quick(0)
    world.quick(1)
    world.until(lambda: len(world.answers()) == 60)
    world.request("long", 1, work=Work(30.0))
    world.run(0.01)
    ahead = [world.request("quick", 0) for _ in range(5)][2]
    world.until(lambda: (world.committed(0) or 0) > ahead, seconds=5)
    first.order(Command.DRAIN)
    world.until(lambda: (world.committed(0) or 0) < ahead, seconds=5)
    world.broker.commit_delay = 60.0
    world.cancel(ahead)
    world.run(5)
    lose(world, first)
    world.broker.commit_delay = 0.001
    second = start(world)
    world.run(60)
    assert world.answered().count((0, ahead)) == 1
    assert outcomes(world)[ahead] == CANCELLED
    assert len(outcomes(world)) == 35
    assert ahead not in started(first, second)


# ---------------------------------------------------------------- after the commit


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_a_cancelled_request_behind_a_running_task_never_starts(world: World, ordering: str) -> None:
    """The request is answered when its turn comes. The requests behind it start."""
    world.request("long", work=Work(30.0), key=b"a")
    for at in range(1, 4):
        world.request(f"next-{at}", work=Work(0.1), key=b"ab"[at % 2 : at % 2 + 1])
    process = start(world, ordering=ordering)
    world.run(5)
    world.cancel(2)
    world.until(lambda: len(outcomes(world)) == 4, seconds=60)
    assert outcomes(world) == {0: OK, 1: OK, 2: CANCELLED, 3: OK}
    assert started(process) == [0, 1, 3]
    assert process.counter("cancel_requests_total", "queued") == 1
    world.until(lambda: not world.table.cancels, seconds=5)


@pytest.mark.parametrize("options", [{}, BATCHES], ids=["singles", "batches"])
@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("room", [True, False])
def test_a_cancelled_request_at_the_head_of_its_queue_never_starts(
    world: World, monkeypatch: pytest.MonkeyPatch, ordering: str, options: dict[str, Any], *, room: bool
) -> None:
    """The commit that must cover the request has no other cause here, also if the commit metadata are full."""
    if not room:
        monkeypatch.setattr(OwnedPartition, "_room", lambda _: 0)
    process = start(world, ordering=ordering, **options)
    world.run(2)
    for offset in (0, 1, 3):
        world.cancel(offset)
    world.run(1)
    for at in range(5):
        world.request("task", work=Work(0.1), key=b"ab"[at % 2 : at % 2 + 1])
    expected = {0: CANCELLED, 1: CANCELLED, 2: OK, 3: CANCELLED, 4: OK}
    world.until(lambda: len(outcomes(world)) == 5, seconds=30)
    assert outcomes(world) == expected
    assert started(process) == [2, 4]
    world.until(lambda: not world.table.cancels, seconds=5)


def test_a_cancelled_request_that_is_alone_in_its_partition_never_starts(world: World) -> None:
    process = start(world, **BATCHES)
    world.run(2)
    world.cancel(0)
    world.request("only", work=Work(0.1))
    world.until(lambda: outcomes(world) == {0: CANCELLED}, seconds=10)
    world.until(lambda: world.committed() == 1, seconds=5)
    assert process.starts == []
