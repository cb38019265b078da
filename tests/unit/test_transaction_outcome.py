"""What the group's committed positions show about a transaction whose producer does not know the outcome."""

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
def test_the_committed_positions_show_whether_a_transaction_was_committed(
    found: dict[Partition, Position], committed: bool | None
) -> None:
    """A position of the transaction proves its commit. Otherwise a position that is not beyond it disproves it."""
    assert was_committed(OURS, found) is committed
