"""How many more out-of-order answers the commit metadata can hold."""

from __future__ import annotations

from worker.core.commit_metadata import FULL, NEARLY_FULL, characters_per_task


class MetadataRoom:
    """The room left in the metadata of one partition, as far as it is known before the next commit."""

    __slots__ = ("_size", "full", "unrecorded")

    def __init__(self) -> None:
        self.full = False  # no new task may start until the metadata is shorter
        self.unrecorded = 0  # tasks answered or failed since the last commit
        self._size = 0  # characters of the last metadata

    def left(self, under_way: int, distance: int, *, size: int = NEARLY_FULL) -> int:
        """Return how many more tasks may start if all of them and those under way must be recorded within ``size``.

        ``distance`` is that of the last admitted offset from the committed one.
        """
        return (size - self._size) // characters_per_task(distance) - under_way - self.unrecorded

    def reserve(self, under_way: int, distance: int) -> int:
        """Return how many more tasks may start below answered ones."""
        return self.left(under_way, distance, size=FULL)

    @property
    def is_nearly_full(self) -> bool:
        """Return whether the last metadata was almost as long as allowed."""
        return self._size >= NEARLY_FULL

    def recorded(self, characters: int) -> None:
        """Record that commit metadata of this size was sent."""
        self._size = characters
        self.full = False
        self.unrecorded = 0
