"""Numbers out of measurements: quantiles, rates, efficiency, pairs. Pure: values in, values out."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TIMES = "\N{MULTIPLICATION SIGN}"  # the unit of a ratio
EDGE = 0.1  # of the answers at each end: programs begin and end unevenly, what is between is steady


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity: a value per repetition. ``goal`` names the number of DESIGN.md it answers to."""

    workload: str
    quantity: str
    program: str
    unit: str
    values: tuple[float, ...]
    goal: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        """The least and the greatest value."""
        return min(self.values), max(self.values)


class Sample(NamedTuple):
    """How far a program was at one moment. CPU seconds are sums since the start of the processes."""

    at: float
    answers: int
    cpu: float = 0.0
    broker_cpu: float = 0.0


class Steady(NamedTuple):
    """What a program did in the middle of its run."""

    per_second: float
    cpu_per_answer: float
    broker_cpu_per_answer: float


class Span(NamedTuple):
    """One task as its answer tells it, in seconds since the epoch."""

    worker: str
    started: float
    finished: float
    cpu: float


class Efficiency(NamedTuple):
    """How much of its processes' time a replica spent in tasks, of 1.

    ``together``: all count from the first start anywhere to the last finish anywhere, so that an uneven beginning or
    end counts against it. ``each``: every process counts from its own first start to its own last finish.
    """

    together: float
    each: float


def quantile(values: Sequence[float], share: float) -> float:
    """The value that ``share`` of all do not exceed (nearest rank, no interpolation)."""
    if not values:
        raise ValueError("no values")
    rank = -int(-share * len(values) // 1)  # rounded up
    return sorted(values)[max(rank, 1) - 1]


def ratios(values: Sequence[float], reference: Sequence[float]) -> tuple[float, ...]:
    """Value by value, as far as both go: repetitions that ran next to each other had the same machine."""
    return tuple(one / other for one, other in zip(values, reference, strict=False))


def steady(samples: Sequence[Sample], total: int) -> Steady:
    """Between the moments at which a tenth and nine tenths of ``total`` answers were there.

    Where there was no look between the two, all came at once, after work that nobody saw: then the whole run counts.
    """
    begin, end = _moment(samples, EDGE * total), _moment(samples, (1 - EDGE) * total)
    answers = (1 - 2 * EDGE) * total
    if not any(begin.at <= sample.at <= end.at for sample in samples):
        begin, end = samples[0], next(sample for sample in samples if sample.at > end.at)
        answers = end.answers
    return Steady(
        per_second=answers / (end.at - begin.at),
        cpu_per_answer=(end.cpu - begin.cpu) / answers,
        broker_cpu_per_answer=(end.broker_cpu - begin.broker_cpu) / answers,
    )


def _moment(samples: Sequence[Sample], answers: float) -> Sample:
    """The moment at which there were so many answers, between two samples on a straight line."""
    for before, after in itertools.pairwise(samples):
        if before.answers <= answers <= after.answers and after.answers > before.answers:
            share = (answers - before.answers) / (after.answers - before.answers)
            at, cpu, broker_cpu = (
                one + share * (other - one)
                for one, other in zip(
                    (before.at, before.cpu, before.broker_cpu), (after.at, after.cpu, after.broker_cpu), strict=True
                )
            )
            return Sample(at, round(answers), cpu, broker_cpu)
    raise ValueError(f"there never were {answers:.0f} answers")


def slow_rate(samples: Sequence[Sample]) -> float:
    """Answers per second of a program that is stopped before its end: from its first answer to the last sample."""
    first = next((sample for sample in samples if sample.answers > 0), None)
    if first is None or samples[-1].at <= first.at:
        return 0.0
    return (samples[-1].answers - first.answers) / (samples[-1].at - first.at)


def efficiency(spans: Iterable[Span]) -> Efficiency:
    """See ``Efficiency``."""
    by_worker: dict[str, list[Span]] = defaultdict(list)
    for span in spans:
        by_worker[span.worker].append(span)
    every = [span for group in by_worker.values() for span in group]
    busy = sum(span.finished - span.started for span in every)
    return Efficiency(
        together=busy / (len(by_worker) * _wall(every)),
        each=busy / sum(_wall(group) for group in by_worker.values()),
    )


def _wall(spans: Sequence[Span]) -> float:
    return max(span.finished for span in spans) - min(span.started for span in spans)
