"""What the group's positions say about a transaction whose producer can no longer tell."""

from __future__ import annotations

import pytest

from worker.core.model import Partition
from worker.kafka.ports import Position
from worker.kafka.transaction_outcome import was_committed

ONE, TWO = Partition("requests", 0), Partition("requests", 1)
OURS = {ONE: Position(5, "metadata of five"), TWO: Position(9, "metadata of nine")}


@pytest.mark.parametrize(
    ("found", "committed"),
    [
        (OURS, True),
        ({ONE: Position(8, "another's"), TWO: OURS[TWO]}, True),
        ({ONE: Position(8, "another's"), TWO: Position(2, "")}, False),
        ({ONE: Position(5, "another's"), TWO: Position(12, "another's")}, False),
        ({ONE: Position(-1001, ""), TWO: Position(-1001, "")}, False),
        ({ONE: Position(8, "another's"), TWO: Position(12, "another's")}, None),
    ],
    ids=["both", "one-is-ours", "one-is-behind", "one-has-other-metadata", "nothing-committed", "all-beyond"],
)
def test_what_the_positions_prove(found: dict[Partition, Position], committed: bool | None) -> None:
    """One position of ours proves the commit, one that is not beyond ours the opposite, and nothing else proves."""
    assert was_committed(OURS, found) is committed
