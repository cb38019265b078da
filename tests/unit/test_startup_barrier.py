"""When a replica's first tasks may start."""

from __future__ import annotations

import pytest

from worker.core.startup_barrier import LONGEST_WAIT, QUIET_SECONDS, PeerProcess, StartupBarrier

ABSENT = PeerProcess(joined=False, assigned=0)


def holding(*counts: int) -> list[PeerProcess]:
    return [PeerProcess(joined=True, assigned=count) for count in counts]


def test_a_single_process_waits_for_nobody() -> None:
    assert StartupBarrier(4).update([ABSENT], 0)


def test_it_stays_closed_until_all_have_joined() -> None:
    barrier = StartupBarrier(4)
    assert not barrier.update([ABSENT, ABSENT], 0)
    assert not barrier.update([*holding(4), ABSENT], 1)
    assert not barrier.update(holding(4, 0), 2)
    assert barrier.update(holding(2, 2), 3)


def test_it_stays_open() -> None:
    """A process that is replaced later, or a rebalance, does not close it again."""
    barrier = StartupBarrier(4)
    barrier.update(holding(2, 2), 0)
    assert barrier.update([*holding(4), ABSENT], 1)


@pytest.mark.parametrize("counts", [(2, 2, 2), (3, 3, 2), (1, 1, 1)])
def test_it_opens_at_once_when_the_shares_are_even(counts: tuple[int, ...]) -> None:
    """Also when other replicas hold the rest."""
    assert StartupBarrier(8).update(holding(*counts), 0)


def test_all_partitions_unevenly_spread_are_about_to_move() -> None:
    barrier = StartupBarrier(8)
    for now in range(int(LONGEST_WAIT)):
        assert not barrier.update(holding(6, 2), float(now))


def test_uneven_shares_of_a_part_are_believed_when_nothing_moves() -> None:
    """Other replicas hold the rest; or a partition is moving between two peers, which ends soon."""
    barrier = StartupBarrier(12)
    assert not barrier.update(holding(6, 3), 0)
    assert not barrier.update(holding(6, 4), QUIET_SECONDS)
    assert not barrier.update(holding(6, 4), 2 * QUIET_SECONDS - 0.1)
    assert barrier.update(holding(6, 4), 2 * QUIET_SECONDS)


@pytest.mark.parametrize("counts", [(1, 0), (1, 1, 0)])
def test_a_peer_without_a_partition_is_not_waited_for_when_nothing_moves(counts: tuple[int, ...]) -> None:
    """Scaling out beside a long task: the other replica keeps the partition of its task for hours."""
    barrier = StartupBarrier(8)
    assert not barrier.update(holding(*counts), 0)
    assert not barrier.update(holding(*counts), QUIET_SECONDS - 0.1)
    assert barrier.update(holding(*counts), QUIET_SECONDS)


def test_processes_that_hold_nothing_at_all_wait() -> None:
    """There is nothing to start, and the first assignment is still to come."""
    barrier = StartupBarrier(8)
    for now in range(int(LONGEST_WAIT)):
        assert not barrier.update(holding(0, 0), float(now))


def test_with_fewer_partitions_than_processes_quiet_is_enough_too() -> None:
    barrier = StartupBarrier(2)
    assert not barrier.update(holding(1, 0, 0), 0)
    assert barrier.update(holding(1, 0, 0), QUIET_SECONDS)


def test_with_fewer_partitions_than_processes_it_opens_when_all_are_held() -> None:
    barrier = StartupBarrier(2)
    assert not barrier.update(holding(1, 0, 0), 0)
    assert not barrier.update([*holding(1, 1), ABSENT], 1)
    assert barrier.update(holding(1, 0, 1), 2)


def test_it_opens_in_the_end_whatever_happens() -> None:
    """Other replicas may hold everything for hours. Counted from the first that joined: imports may take long."""
    barrier = StartupBarrier(4)
    assert not barrier.update([ABSENT, ABSENT], 0)
    assert not barrier.update([*holding(1), ABSENT], 100)
    assert not barrier.update([ABSENT, ABSENT], 99 + LONGEST_WAIT)
    assert barrier.update([*holding(1), ABSENT], 100 + LONGEST_WAIT)
