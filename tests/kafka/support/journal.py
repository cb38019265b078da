"""The handlers' journal: every start and every end of a task in any process."""

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
    """A file to which the handlers append."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.touch()

    def entries(self, event: str | None = None) -> list[Entry]:
        """Return the lines so far, in the order of writing, of one ``event`` or of all."""
        lines = self.path.read_text().splitlines()
        entries = [Entry(**json.loads(line)) for line in lines]
        return [entry for entry in entries if event in (None, entry.event)]

    def starts(self) -> Counter[Place]:
        """Return how often each task was started."""
        return Counter((entry.partition, entry.offset) for entry in self.entries("start"))

    def running(self) -> dict[Place, int]:
        """Return the tasks that have started and not ended, with the pid of the process of each."""
        running: dict[Place, int] = {}
        for entry in self.entries():
            place = (entry.partition, entry.offset)
            if entry.event == "start":
                running[place] = entry.pid
            elif running.get(place) == entry.pid:
                del running[place]
        return running
