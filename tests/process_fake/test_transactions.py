"""Exactly-once: transactions that are under way when the group changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.process_fake.stand_ins import Work
from worker.errors import ExitCode

if TYPE_CHECKING:
    from tests.process_fake.world import World


def test_a_lease_begins_when_the_transaction_of_the_lease_before_it_is_decided(world: World) -> None:
    """A coordinator that has forgotten a removal accepts an earlier commit: the member has the same epoch again.

    The new lease would begin at offsets without that commit, and the request would be answered twice.
    """
    world.request(work=Work(seconds=1.0))
    process = world.process(guarantee="exactly-once")
    process.transaction_thread.seconds = 30.0
    world.until(lambda: process.starts and process.transaction_thread.busy)
    world.run(5)
    world.broker.group("group").leave(process.consumer)  # and joins again, under the same name
    world.run(100)
    assert world.answered() == [(0, 0)]
    assert world.committed() == 1
    assert process.counter("rebalances_total", "lost") == 1


def test_a_transaction_of_a_lost_partition_does_not_keep_the_process_from_leaving(world: World) -> None:
    world.request(work=Work(seconds=1.0))
    process = world.process(guarantee="exactly-once")
    process.transaction_thread.seconds = 1e9
    world.until(lambda: process.starts and process.transaction_thread.busy)
    world.run(5)
    world.broker.group("group").leave(process.consumer)
    world.run(5)
    (code,) = world.leave(process)
    assert code is ExitCode.DRAIN_TIMED_OUT


def test_a_late_copy_of_a_commit_does_not_set_the_committed_offset_back(world: World) -> None:
    """The client repeats a request after its connection was lost, and the first copy may arrive much later."""
    world.broker.late_copies = 30.0
    for _ in range(3):
        world.request(work=Work(seconds=5.0))
    first = world.process(guarantee="exactly-once")
    world.until(lambda: len(world.answered()) == 3)
    world.run(60)
    assert world.committed() == 3
    first.kill()
    world.broker.group("group").leave(first.consumer)
    world.process(guarantee="exactly-once")
    world.run(60)
    assert world.answered() == [(0, 0), (0, 1), (0, 2)]
