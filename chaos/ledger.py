"""What a run has left behind, as values: what was submitted, and what is to be held against it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from chaos.load import Item
    from chaos.plan import Options

Place = tuple[int, int]  # partition and offset: which request it is
Span = tuple[float, float]  # from when to when, by the system's monotonic clock


class Answer(NamedTuple):
    """A committed answer as it was read. ``topic`` and ``place`` are its origin."""

    topic: str
    place: Place
    outcome: str
    sequence: int
    key: bytes | None
    at: float  # when it was produced


class Letter(NamedTuple):
    """A dead letter as it was read."""

    place: Place
    key: bytes | None
    value: bytes | None


class Mark(NamedTuple):
    """A line of the handlers' journal. ``event``: start, end, raise, or crash (it is about to end its process)."""

    event: str
    pid: int
    place: Place
    attempt: int
    time: float


class Exit(NamedTuple):
    """How a replica ended. ``wanted``: only by SIGTERM, once, and without a fault beside it."""

    replica: str
    code: int
    wanted: bool


class Sample(NamedTuple):
    """A worker process at a time."""

    pid: int
    time: float
    pss: int
    threads: Counter[str]  # how many of each name


@dataclass(frozen=True)
class Evidence:
    """All of it. The request topic is ``topic``."""

    options: Options
    topic: str
    sent: Mapping[Place, Item]
    again: Sequence[Item] = ()  # sent once more after a failure
    answers: Sequence[Answer] = ()
    letters: Sequence[Letter] = ()
    marks: Sequence[Mark] = ()
    committed: Mapping[int, int] = field(default_factory=dict)
    ends: Mapping[int, int] = field(default_factory=dict)
    told_lost: frozenset[Place] = frozenset()  # what the program itself has called lost
    excuses: Sequence[Span] = ()  # faults that may lead to second starts
    exits: Sequence[Exit] = ()
    leftovers: Sequence[str] = ()  # processes that outlived the run
    samples: Sequence[Sample] = ()
    effects: Mapping[Place, int] | None = None  # rows that handlers wrote into the store
    hung: int = 0  # clients that one process has left behind, at most
    holds: Sequence[tuple[str, float]] = ()  # by which process, and for how many seconds
    failed: Sequence[str] = ()  # what else was to happen and did not

    @property
    def starts(self) -> dict[Place, list[Mark]]:
        """The starts of each request, in order of time."""
        found: dict[Place, list[Mark]] = defaultdict(list)
        for mark in sorted(self.marks, key=lambda mark: mark.time):
            if mark.event == "start":
                found[mark.place].append(mark)
        return found

    @property
    def answered(self) -> dict[Place, list[Answer]]:
        """The answers to each request."""
        found: dict[Place, list[Answer]] = defaultdict(list)
        for answer in self.answers:
            found[answer.place].append(answer)
        return found


def read_journal(path: Path) -> list[Mark]:
    """What handlers have written. A line that its writer was killed in is left out."""
    if not path.exists():
        return []
    marks = []
    for line in path.read_text(errors="replace").splitlines():
        parts = line.split(" ")
        if len(parts) == len(Mark._fields) + 1:
            event, pid, partition, offset, attempt, time = parts
            marks.append(Mark(event, int(pid), (int(partition), int(offset)), int(attempt), float(time)))
    return marks
