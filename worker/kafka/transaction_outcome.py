"""Determines from the group's positions how a transaction ended when its producer cannot tell. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.model import Partition
    from worker.kafka.ports import Position


def was_committed(ours: Mapping[Partition, Position], found: Mapping[Partition, Position]) -> bool | None:
    """Return whether a transaction with our positions was committed, given the group's positions after its end.

    If one position is exactly ours, the transaction was committed, because no other transaction has the same metadata.
    If one is not beyond ours, it was not. A member that continued from our position under a later lease leaves us
    nothing to do there, and the leases are checked before anything is repeated. Return None if others have gone beyond
    all our positions, so that there is no proof.
    """
    if any(found[partition] == position for partition, position in ours.items()):
        return True
    if any(found[partition].offset <= position.offset for partition, position in ours.items()):
        return False
    return None
