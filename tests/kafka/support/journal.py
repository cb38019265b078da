"""What the handlers wrote down: every start and every end of a task, whoever ran it."""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path


class Entry(NamedTuple):
    """One line. ``event`` is ``start``, ``end`` or ``raise``; ``time`` is the system's monotonic clock."""

    event: str
    pid: int
    partition: int
    offset: int
    attempt: int
    time: float


Place = tuple[int, int]  # partition and offset


class Journal:
    """A file that the handlers append to."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def entries(self, event: str | None = None) -> list[Entry]:
        """The lines so far, in the order they were written; of one event only if it is named."""
        lines = self.path.read_text().splitlines()
        entries = [Entry(**json.loads(line)) for line in lines]
        return [entry for entry in entries if event in (None, entry.event)]

    def starts(self) -> Counter[Place]:
        """How often each task was started."""
        return Counter((entry.partition, entry.offset) for entry in self.entries("start"))

    def running(self) -> dict[Place, int]:
        """The tasks that have started last and not ended, with the pid of the process each runs in."""
        running: dict[Place, int] = {}
        for entry in self.entries():
            place = (entry.partition, entry.offset)
            if entry.event == "start":
                running[place] = entry.pid
            elif running.get(place) == entry.pid:
                del running[place]
        return running
