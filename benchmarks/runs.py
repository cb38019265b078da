"""The work of a program and its measurements, as values."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.processes import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.endpoint import Partitioner
    from benchmarks.figures import Sample, Span


class Load(NamedTuple):
    """Empty tasks that wait before a program starts: the payload, and the number of requests with it."""

    payload: str
    waiting: int


class BacklogRun(NamedTuple):
    """The measurements of a program on a backlog. Figures that only Kafka clients have are 0 for others."""

    samples: list[Sample]
    total: int  # tasks that were watched
    pss: int  # bytes of all its processes
    processes: int
    batches: float = 0.0  # record batches written per 1000 answers
    commits: float = 0.0  # offsets committed per 1000 answers
    received: float = 0.0  # bytes from the broker ÷ bytes of the requests settled


class TaskRun(NamedTuple):
    """Tasks of given lengths, as their answers report them."""

    spans: list[Span]
    cpu: float = 0.0  # seconds of all processes of the program meanwhile; 0 if unknown
    server_cpu: float = 0.0  # seconds of the broker or Redis meanwhile
    received: float = 0.0  # as in ``BacklogRun``

    @property
    def makespan(self) -> float:
        """Return the seconds from the first start to the last finish."""
        return max(span.finished for span in self.spans) - min(span.started for span in self.spans)


def run_lengths(payloads: Iterable[str]) -> list[tuple[str, int]]:
    """Return each payload with the number of times that it comes in a row."""
    return [(payload, len(list(group))) for payload, group in itertools.groupby(payloads)]


@dataclass(frozen=True, slots=True)
class Work:
    """Tasks of given lengths in seconds.

    ``short`` selects a program's settings for short tasks. ``partitioner`` defaults to all partitions in turn. ``bulk``
    is the minimum size of a payload, in bytes. ``handler`` runs the tasks in that many ``processes``.
    """

    lengths: Sequence[float]
    short: bool
    partitioner: Partitioner | None = None
    by_key: bool = False
    bulk: int = 0
    handler: str = "spin"
    processes: int = PROCESSES

    @property
    def payloads(self) -> list[str]:
        """Return the lengths as texts. Blanks around a number do not matter."""
        return [f"{length:g}".ljust(self.bulk) for length in self.lengths]
