"""The claim on the requests of a partition."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.core.claim import Claim

if TYPE_CHECKING:
    from worker.core.model import Partition


class Lease(Claim):
    """The claim on every request of one partition, from its assignment until it is released or lost.

    A partition that is assigned again gets a new lease, so results of the old one no longer count.
    """

    __slots__ = ("partition",)

    def __init__(self, partition: Partition) -> None:
        super().__init__()
        self.partition = partition
