"""When a replica's first tasks may start."""

from __future__ import annotations

import pytest

from worker.core.startup_barrier import LONGEST_WAIT, QUIET_SECONDS, PeerProcess, StartupBarrier

ABSENT = PeerProcess(joined=False, assigned=0)


def holding(*counts: int) -> list[PeerProcess]:
    return [PeerProcess(joined=True, assigned=count) for count in counts]


def test_the_barrier_is_open_for_a_single_process() -> None:
    assert StartupBarrier(4).update([ABSENT], 0)


def test_the_barrier_stays_closed_until_all_processes_have_joined() -> None:
    barrier = StartupBarrier(4)
    assert not barrier.update([ABSENT, ABSENT], 0)
    assert not barrier.update([*holding(4), ABSENT], 1)
    assert not barrier.update(holding(4, 0), 2)
    assert barrier.update(holding(2, 2), 3)


def test_an_open_barrier_stays_open() -> None:
    """A process that is replaced later, or a rebalance, does not close it again."""
    barrier = StartupBarrier(4)
    barrier.update(holding(2, 2), 0)
    assert barrier.update([*holding(4), ABSENT], 1)


@pytest.mark.parametrize("counts", [(2, 2, 2), (3, 3, 2), (1, 1, 1)])
def test_the_barrier_opens_immediately_when_the_shares_are_even(counts: tuple[int, ...]) -> None:
    """Other replicas may hold the remaining partitions."""
    assert StartupBarrier(8).update(holding(*counts), 0)


def test_the_barrier_stays_closed_while_all_partitions_are_spread_unevenly() -> None:
    # The group is about to move partitions between the processes of this replica.
    barrier = StartupBarrier(8)
    for now in range(int(LONGEST_WAIT)):
        assert not barrier.update(holding(6, 2), float(now))


def test_the_barrier_opens_with_uneven_shares_of_some_partitions_after_a_quiet_time() -> None:
    """Other replicas hold the remaining partitions, or a partition is moving between two peers, which ends soon."""
    barrier = StartupBarrier(12)
    assert not barrier.update(holding(6, 3), 0)
    assert not barrier.update(holding(6, 4), QUIET_SECONDS)
    assert not barrier.update(holding(6, 4), 2 * QUIET_SECONDS - 0.1)
    assert barrier.update(holding(6, 4), 2 * QUIET_SECONDS)


@pytest.mark.parametrize("counts", [(1, 0), (1, 1, 0)])
def test_the_barrier_opens_with_a_peer_without_partitions_after_a_quiet_time(counts: tuple[int, ...]) -> None:
    """A replica is added during a long task. The other replica keeps the partition of that task for hours."""
    barrier = StartupBarrier(8)
    assert not barrier.update(holding(*counts), 0)
    assert not barrier.update(holding(*counts), QUIET_SECONDS - 0.1)
    assert barrier.update(holding(*counts), QUIET_SECONDS)


def test_the_barrier_stays_closed_while_no_process_has_a_partition() -> None:
    """There is nothing to start, and the first assignment is still to come."""
    barrier = StartupBarrier(8)
    for now in range(int(LONGEST_WAIT)):
        assert not barrier.update(holding(0, 0), float(now))


def test_with_fewer_partitions_than_processes_the_barrier_opens_after_a_quiet_time() -> None:
    barrier = StartupBarrier(2)
    assert not barrier.update(holding(1, 0, 0), 0)
    assert barrier.update(holding(1, 0, 0), QUIET_SECONDS)


def test_the_barrier_opens_when_fewer_partitions_than_processes_are_all_assigned() -> None:
    barrier = StartupBarrier(2)
    assert not barrier.update(holding(1, 0, 0), 0)
    assert not barrier.update([*holding(1, 1), ABSENT], 1)
    assert barrier.update(holding(1, 0, 1), 2)


def test_the_barrier_opens_after_the_longest_wait() -> None:
    """Other replicas may hold all partitions for hours. The wait begins with the first join: imports may take long."""
    barrier = StartupBarrier(4)
    assert not barrier.update([ABSENT, ABSENT], 0)
    assert not barrier.update([*holding(1), ABSENT], 100)
    assert not barrier.update([ABSENT, ABSENT], 99 + LONGEST_WAIT)
    assert barrier.update([*holding(1), ABSENT], 100 + LONGEST_WAIT)
