"""How many more out-of-order answers the commit metadata can hold."""

from __future__ import annotations

from worker.core.commit_metadata import CHARACTERS_PER_TASK, NEARLY_FULL


class MetadataRoom:
    """The room left in the metadata of one partition, as far as it is known before the next commit."""

    __slots__ = ("_size", "full", "unrecorded")

    def __init__(self) -> None:
        self.full = False  # no new task may start until the metadata is shorter
        self.unrecorded = 0  # tasks answered or failed since the last commit
        self._size = 0  # characters of the last metadata

    def left(self, under_way: int) -> int:
        """Return how many more tasks may start out of order if all of them and those under way must be recorded."""
        return (NEARLY_FULL - self._size) // CHARACTERS_PER_TASK - under_way - self.unrecorded

    @property
    def is_nearly_full(self) -> bool:
        """Return whether the last metadata was almost as long as allowed."""
        return self._size >= NEARLY_FULL

    def recorded(self, characters: int) -> None:
        """Record that commit metadata of this size was sent."""
        self._size = characters
        self.full = False
        self.unrecorded = 0
