"""Partitions that come and go while tasks run."""

from __future__ import annotations

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import ACKS, World
from worker.errors import ExitCode
from worker.process.cell import Command
from worker.process.poller import CANCEL_GRACE


def busy(world: World, *, seconds: float = 100.0, obeys: float | None = 1.0, hold: float = 1_000.0, **options: float):
    """A process that runs one long task of each partition, one after the other; with more behind them."""
    for number in (0, 1):
        for _ in range(3):
            world.request("long", number, work=Work(seconds=seconds, obeys=obeys))
    process = world.process(hold=hold, **options)
    world.until(lambda: process.starts)
    return process


def test_a_revoked_partition_waits_for_its_running_task(world: World) -> None:
    """The new owner gets it when the answer is committed, and the task is not done twice."""
    process = busy(world)
    running = process.starts[0][0]
    rival = world.rival()
    world.run(20)
    other = 1 - running
    # Which of the two goes is the group's choice; only a partition with a running task has to wait.
    world.until(lambda: rival.owned)
    if rival.owned == {running}:
        assert world.committed(running) == 1
        assert rival.got_at[running] >= process.service.started[0][0] + 100
    else:
        assert rival.owned == {other}
    assert process.service.cancelled == []


def own_one(world: World, **options):
    """A process that holds only partition 0, with its first task running; a rival who holds the other."""
    rival = world.rival()
    world.until(lambda: len(rival.owned) == 2)
    process = world.process(**options)
    world.until(lambda: process.owned)
    (number,) = process.owned
    return process, rival, number


def test_what_has_not_started_of_it_goes_at_once(world: World) -> None:
    """Only the running task is waited for; the new owner reads on right behind it."""
    process, leaver, mine = taken(world, hold=1_000.0)
    rival = leaver()
    world.until(lambda: mine in rival.owned)
    world.until(lambda: rival.records)
    assert process.starts == [(mine, 0, 1)]
    assert world.answered() == [(mine, 0)]
    assert [record.offset for record in rival.records if record.partition.number == mine] == [1, 2]


def taken(world: World, *, seconds: float = 100.0, obeys: float | None = 1.0, payload: str = "long", **options: float):
    """A process that runs the first of three tasks of its only partition, which the next rival will take from it."""
    small = World(partitions=1)
    world.__dict__.update(small.__dict__)
    for _ in range(3):
        world.request(payload, work=Work(seconds=seconds, obeys=obeys))
    process = world.process(**options)
    world.until(lambda: process.starts)

    def rival():
        """It joins, and the group moves the only partition to it."""
        world.broker.group("group").prefer_newcomers = True
        return world.rival()

    return process, rival, 0
