"""When a replica's first tasks may start."""

from __future__ import annotations

import pytest

from worker.core.gate import PATIENCE_SECONDS, QUIET_SECONDS, Gate, Sibling

ABSENT = Sibling(joined=False, assigned=0)


def holding(*counts: int) -> list[Sibling]:
    return [Sibling(joined=True, assigned=count) for count in counts]


def test_a_single_process_waits_for_nobody() -> None:
    assert Gate(4).update([ABSENT], 0)


def test_it_stays_shut_until_all_have_joined() -> None:
    gate = Gate(4)
    assert not gate.update([ABSENT, ABSENT], 0)
    assert not gate.update([*holding(4), ABSENT], 1)
    assert not gate.update(holding(4, 0), 2)
    assert gate.update(holding(2, 2), 3)


def test_it_stays_open() -> None:
    """A process that is replaced later, or a rebalance, does not shut it again."""
    gate = Gate(4)
    gate.update(holding(2, 2), 0)
    assert gate.update([*holding(4), ABSENT], 1)


@pytest.mark.parametrize("counts", [(2, 2, 2), (3, 3, 2), (1, 1, 1)])
def test_it_opens_at_once_when_the_shares_are_even(counts: tuple[int, ...]) -> None:
    """Also when other replicas hold the rest."""
    assert Gate(8).update(holding(*counts), 0)


def test_all_partitions_unevenly_spread_are_about_to_move() -> None:
    gate = Gate(8)
    for now in range(int(PATIENCE_SECONDS)):
        assert not gate.update(holding(6, 2), float(now))


def test_uneven_shares_of_a_part_are_believed_when_nothing_moves() -> None:
    """Other replicas hold the rest; or a partition is between two siblings, which passes."""
    gate = Gate(12)
    assert not gate.update(holding(6, 3), 0)
    assert not gate.update(holding(6, 4), QUIET_SECONDS)
    assert not gate.update(holding(6, 4), 2 * QUIET_SECONDS - 0.1)
    assert gate.update(holding(6, 4), 2 * QUIET_SECONDS)


@pytest.mark.parametrize("counts", [(1, 0), (1, 1, 0)])
def test_a_process_without_a_partition_is_waited_for(counts: tuple[int, ...]) -> None:
    gate = Gate(8)
    for now in range(int(PATIENCE_SECONDS)):
        assert not gate.update(holding(*counts), float(now))


def test_with_fewer_partitions_than_processes_it_opens_when_all_are_held() -> None:
    gate = Gate(2)
    assert not gate.update(holding(1, 0, 0), 0)
    assert not gate.update([*holding(1, 1), ABSENT], 1)
    assert gate.update(holding(1, 0, 1), 2)


def test_it_opens_in_the_end_whatever_happens() -> None:
    """Other replicas may hold everything for hours. Counted from the first that joined: imports may take long."""
    gate = Gate(4)
    assert not gate.update([ABSENT, ABSENT], 0)
    assert not gate.update([*holding(1), ABSENT], 100)
    assert not gate.update([ABSENT, ABSENT], 99 + PATIENCE_SECONDS)
    assert gate.update([*holding(1), ABSENT], 100 + PATIENCE_SECONDS)
