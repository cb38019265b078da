"""The interface of the state topic for a worker process."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.model import Partition
    from worker.core.task_state import Origin
    from worker.kafka.ports import Deliveries


class Begin(NamedTuple):
    """The records of this partition follow from the beginning: forget the known ones."""

    place: Partition


class Pair(NamedTuple):
    """A record of the state topic, about a followed partition and not written by this process."""

    key: bytes
    value: bytes | None


class CaughtUp(NamedTuple):
    """All records from before following request ``number`` have been sent."""

    place: Partition
    number: int


News = Begin | Pair | CaughtUp


class StateTopic(Protocol):
    """Follows the records about partitions of the request topics, and writes records. Poll thread; never waits.

    If the reader or the broker is unavailable, nothing arrives.
    """

    def follow(self, place: Partition, number: int) -> None:
        """Send the current records of this partition, and then all new ones. The numbers rise."""

    def unfollow(self, place: Partition) -> None:
        """Stop sending records of this partition."""

    def receive(self) -> Sequence[News]:
        """Return what has arrived."""

    def write(self, origin: Origin, key: bytes, value: bytes | None, token: object) -> None:
        """Write a record; None is a tombstone. ``written`` reports its result once, under ``token``."""

    def written(self) -> Deliveries:
        """Return the results so far."""

    def close(self) -> None:
        """Give up everything that is not written yet."""
