"""A failed task waits for the commit that records its failure, however long that takes, and holds up as little else."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process_fake.stand_ins import Work, failing
from worker.codec import OK

if TYPE_CHECKING:
    from tests.process_fake.world import World


@pytest.mark.parametrize("idle", [False, True])
@pytest.mark.parametrize("delay", [0.002, 0.3, 0.9, 2.5])
def test_a_failed_attempt_is_recorded_before_the_next_one(world: World, delay: float, *, idle: bool) -> None:
    """This holds however long a commit takes. A crash loses the attempts that no commit has recorded."""
    before = 30 if idle else 0
    if idle:
        world.quick()
    process = world.process(retry_first=0.02, retry_greatest=0.1, max_attempts=10)
    world.until(lambda: (world.committed() or 0) == before)
    world.broker.commit_delay = delay
    world.request("flaky", work=[failing(0.0005)] * 10)
    while len(world.answers()) == before:
        made = len([start for start in process.starts if start[1] == before])
        counted = world.noted().attempts.get(before, 0)
        assert made - counted <= 1
        world.run(0.001)
    assert made == 10


@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_a_failed_task_does_not_stop_other_partitions_in_an_outage(world: World, ordering: str) -> None:
    """It waits for its commit. Tasks of seconds run alone, but need not wait for that."""
    world.request("bad", 0, work=failing(seconds=2.0, retry_after=1.0))
    for _ in range(5):
        world.request("long", 1, work=Work(seconds=2.0))
    process = world.process(ordering=ordering)
    world.broker.commit_delay = 3_000.0
    world.run(100)
    assert [start[:2] for start in process.starts if start[0] == 1] == [(1, offset) for offset in range(5)]


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_failed_tasks_do_not_stop_their_partition_in_an_outage(world: World, ordering: str) -> None:
    """They wait for their commits, and records behind them are fetched nevertheless."""
    process = world.process(ordering=ordering)
    world.run(3)
    for _ in range(3):
        world.request("bad", work=failing(seconds=2.0, retry_after=1.0))
    for _ in range(20):
        world.request("long", work=Work(seconds=2.0))
    world.until(lambda: process.starts)
    world.broker.commit_delay = 3_000.0
    world.run(100)
    assert [start[1] for start in process.starts] == list(range(23))


@pytest.mark.parametrize(("ordering", "other"), [("partition", 1), ("unordered", 0), ("key", 0)])
@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_slow_coordinator_is_no_outage(world: World, guarantee: str, ordering: str, other: int) -> None:
    """Otherwise long tasks of other keys would overtake a failed task again and again."""
    world.request("flaky", 0, key=b"a", work=[failing(seconds=200.0, retry_after=1.0), Work(1.0)])
    for number in range(20):
        world.request("long", other, key=b"%d" % number, work=Work(seconds=200.0))
    process = world.process(ordering=ordering, guarantee=guarantee)
    world.broker.commit_delay = process.transaction_thread.seconds = 1.5
    world.run(2_000)
    assert 0 < [start[:2] for start in process.starts].index((0, 0), 1) < 8


def test_in_an_outage_failed_tasks_fill_no_batch(world: World) -> None:
    process = world.process(ordering="unordered", batch_size=5, batch_wait=5.0)
    world.run(3)
    for _ in range(5):
        world.request("bad", work=failing(retry_after=1.0))
    world.until(lambda: len(process.starts) == 5)
    world.broker.commit_delay = 3_000.0
    world.run(4)
    began = world.clock()
    for _ in range(4):
        world.request("quick")
    world.until(lambda: len(process.starts) == 9, seconds=20)
    assert world.clock() - began >= 5.0


@pytest.mark.parametrize(("ordering", "other"), [("partition", 1), ("unordered", 1), ("unordered", 0), ("key", 0)])
def test_a_crash_after_an_outage_does_not_count_against_a_failed_task_that_waits(
    world: World, ordering: str, other: int
) -> None:
    """The start of a failed task is requested as an outage begins, and then a long task of another key starts first."""
    world.request("bad", 0, key=b"a", work=[failing(seconds=20.0, retry_after=1.0), Work()])
    world.request("first", other, key=b"b", work=Work(seconds=20.0))
    world.request("long", other, key=b"c", work=Work(seconds=600.0))
    process = world.process(ordering=ordering, max_attempts=2)
    world.run(30)
    world.broker.commit_delay = 40.0
    world.run(20)
    world.broker.commit_delay = 0.002
    world.run(250)
    assert len([start for start in process.starts if start[:2] == (0, 0)]) == 1
    world.crash(process)
    next_process = world.process(ordering=ordering, max_attempts=2)
    world.until(lambda: len(world.answers()) == 3, seconds=2_000)
    assert [start[:2] for start in next_process.starts].count((0, 0)) == 1
    assert sorted((answer.outcome, answer.attempt) for answer in world.answers()) == [(OK, 1), (OK, 2), (OK, 2)]
