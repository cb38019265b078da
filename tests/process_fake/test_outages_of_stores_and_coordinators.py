"""An offset store or a coordinator that is away never ends a process, and no running task is lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.scene import scene
from tests.process_fake.stand_ins import Work
from tests.process_fake.world import ACKS, GROUP, World
from worker.errors import ExitCode
from worker.process.status_block import Command
from worker.stores.port import RefusedError, StoredAnswer, StoreError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.process_fake.world import Process

LONG = 900.0  # seconds of a task that must not be lost


class Store:
    """An offset store that can be switched off."""

    def __init__(self, kind: type[StoreError] = StoreUnavailableError) -> None:
        self.kind = kind  # of its errors
        self.down = False
        self.skipped: list[int] = []
        self.closed = 0

    def positions(self, partitions: object) -> dict[Any, int]:
        self._check()
        return {}

    def answers(self, *_: object) -> Any:
        self._check()
        return iter(())

    def skip(self, _partition: object, offset: int) -> None:
        self._check()
        self.skipped.append(offset)

    def close(self) -> None:
        self.closed += 1

    def _check(self) -> None:
        if self.down:
            raise self.kind("the database is restarting")


def with_a_long_task(world: World, store: Store | None = None) -> tuple[Process, int]:
    """Return a process that owns one partition and runs a long task of it, and the number of this partition."""
    world.rival()
    world.run(1)
    process = world.process(store=store)
    world.until(lambda: len(process.owned) == 1)
    mine = process.owned[0]
    world.request("long", mine, work=Work(seconds=LONG))
    world.until(lambda: process.starts)
    return process, mine


KINDS = pytest.mark.parametrize("kind", [StoreUnavailableError, RefusedError])
"""It is away, or its tables are, because somebody migrates the database."""


@KINDS
def test_a_new_partition_waits_while_the_offset_store_is_away(world: World, kind: type[StoreError]) -> None:
    """The new partition waits until the store answers. The running task continues (B1)."""
    store = Store(kind)
    process, mine = with_a_long_task(world, store)
    store.down = True
    world.request("other", 1 - mine)
    world.move(1 - mine, process)
    world.run(600)
    assert (process.error, process.owned) == (None, [mine])
    store.down = False
    world.until(lambda: process.owned == [0, 1], seconds=10)
    world.until(lambda: len(world.answers()) == 2, seconds=2 * LONG)


@KINDS
def test_a_skip_is_repeated_until_the_offset_store_is_back(world: World, kind: type[StoreError]) -> None:
    """The answer is confirmed. The request is settled when the store has moved past it (B1)."""
    store = Store(kind)
    process = world.process(store=store)
    world.until(lambda: process.owned == [0, 1])
    store.down = True
    world.raw(b"\xff")
    world.until(world.answers)
    world.run(100)
    assert (process.error, world.committed(), store.skipped) == (None, None, [])
    store.down = False
    world.until(lambda: world.committed() == 1, seconds=5)
    assert store.skipped == [0]


def test_a_store_that_refuses_from_the_beginning_ends_the_process(world: World) -> None:
    """It is not set up correctly, and the message says why."""
    store = Store(RefusedError)
    store.down = True
    process = world.process(store=store)
    world.until(lambda: process.error is not None)
    assert isinstance(process.error, RefusedError)
    assert process.error.exit_code is ExitCode.SETTINGS_INVALID


class Results(Store):
    """A store that keeps the results of partition 0."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[int, StoredAnswer] = {}

    def positions(self, partitions: Any) -> dict[Any, int]:
        self._check()
        return {one: max(self.rows) + 1 for one in partitions if one.number == 0 and self.rows}

    def answers(self, *place: Any) -> Any:
        self._check()
        partition, start, stop = place
        return iter([row for at, row in sorted(self.rows.items()) if start <= at < stop and not partition.number])


@pytest.mark.parametrize("batch_size", [1, 5])
def test_the_first_task_of_a_partition_waits_until_the_group_has_an_offset(world: World, batch_size: int) -> None:
    """Otherwise the next process could not know that the answer for a stored result is missing."""
    store = Results()
    options: dict[str, Any] = {"store": store, "offset_store": "module:store", "batch_size": batch_size}
    process = world.process(**options)
    world.until(lambda: process.owned == [0, 1])
    world.broker.fail_commits("COORDINATOR_NOT_AVAILABLE", 100_000)
    world.broker.fail(ACKS, "_TIMED_OUT", 100_000)
    world.request("first", work=Work(0.5))
    world.run(60)
    assert process.starts == []
    world.broker.commit_faults.clear()
    world.until(lambda: process.starts, seconds=10)
    store.rows[0] = StoredAnswer(0, None, b"stored", 1, 1, 1, 2, 0.0)
    world.run(5)
    world.crash(process)
    world.broker.topics[ACKS].faults.clear()
    world.process(**options)
    world.until(lambda: world.answered() == [(0, 0)])


def test_a_new_partition_waits_while_the_coordinator_is_away(world: World) -> None:
    """The new partition waits for its committed offset. The running task continues (B2)."""
    process, mine = with_a_long_task(world)
    process.consumer.deaf = True
    world.request("other", 1 - mine)
    world.move(1 - mine, process)
    world.run(600)
    assert (process.error, process.owned) == (None, [mine])
    process.consumer.deaf = False
    world.until(lambda: process.owned == [0, 1], seconds=10)
    world.until(lambda: len(world.answers()) == 2, seconds=2 * LONG)


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_commit_without_a_reply_does_not_stop_later_commits(world: World, guarantee: str) -> None:
    """After a while it counts as failed, and the same offsets are committed again (B5).

    Under exactly-once, commits are transactions, and the transaction thread ends each of them.
    """
    process = world.process(guarantee=guarantee)
    world.until(lambda: process.owned == [0, 1])
    world.request(work=Work(seconds=0.5))
    world.until(lambda: world.committed() == 1)
    world.run(5)
    commit = process.consumer.commit
    lost: list[object] = []

    def lose_one(positions: Mapping[Any, Any]) -> None:
        if lost:
            commit(positions)
        else:
            lost.append(positions)

    process.consumer.commit = lose_one  # type: ignore[method-assign]
    for _ in range(20):
        world.request()
    world.until(lambda: len(world.answers()) == 21 and world.committed() == 21, seconds=300)
    assert lost


def test_a_member_that_the_group_removes_during_a_hold_gives_up_its_partitions(world: World) -> None:
    """The client reports the removal only when the revoked partition is released. A failed commit shows it earlier."""
    for _ in range(2):
        world.request("long", 0, work=Work(seconds=LONG, obeys=0.1))
    process = world.process(hold=86_400.0)
    world.until(lambda: process.starts)
    for number in (0, 1):
        world.move(number, process)
    rival = world.rival()
    world.move(0, rival)
    world.run(10)
    world.broker.group(GROUP).leave(process.consumer)
    world.until(lambda: process.service.cancelled, seconds=40)
    assert process.counter("rebalances_total", "lost") == 1
    assert world.answers() == []


def test_the_store_is_closed_when_the_process_has_left(world: World) -> None:
    """It is closed once, after the last request without a result has been skipped."""
    store = Store()
    process = world.process(store=store)
    world.until(lambda: process.owned == [0, 1])
    world.raw(b"\xff")
    world.until(world.answers)
    assert store.closed == 0
    world.leave(process)
    assert (store.skipped, store.closed) == ([0], 1)


def test_the_store_is_not_closed_while_a_task_that_was_given_up_runs(world: World) -> None:
    """Its transaction may be open on the executor's thread. The end of the process closes the connections."""
    store = Store()
    process = world.process(store=store)
    world.request("deaf", work=Work(seconds=5_000.0, obeys=None))
    world.until(lambda: process.starts)
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    assert store.closed == 0


def test_the_store_is_not_closed_while_a_task_that_outlives_its_hold_runs(world: World) -> None:
    """Its process leaves because other work waits behind the task. The handler may still use the store."""
    store = Store()
    at = scene(world, Work(seconds=5_000.0, obeys=None), hold=60.0, others=Work(), store=store)
    world.move(0, at.rival)
    world.until(lambda: at.process.exit_code is not None)
    assert at.process.service.running is not None
    assert store.closed == 0


def test_a_process_that_waits_for_a_commit_does_not_poll_without_a_pause(world: World) -> None:
    """While a start waits for the reply to a commit, the loop makes twenty turns a second (B15)."""
    process = world.process(guarantee="at-most-once")
    world.until(lambda: process.owned == [0, 1])
    process.consumer.commit = lambda positions: None  # type: ignore[method-assign]
    world.request()
    world.until(lambda: process.loop._committer.in_flight)
    world.run(5)
    before = process.counter("polls_total")
    world.run(40)
    assert process.counter("polls_total") - before <= 40 * 25
    assert process.starts == []
