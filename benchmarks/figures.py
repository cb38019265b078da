"""Figures from measurements: quantiles, intervals, rates, efficiency, ratios. Pure."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

TIMES = "\N{MULTIPLICATION SIGN}"  # the unit of a ratio
EDGE = 0.1  # share of the answers at each end that does not count, because programs start and stop unevenly
BEYOND = 10  # samples that must lie beyond a quantile
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured quantity, with a value per repetition. ``goal`` is the name of its goal, if it has one."""

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
        """Return the least and the greatest value."""
        return min(self.values), max(self.values)

    @property
    def interval(self) -> tuple[float, float] | None:
        """Return a confidence interval of the median, or None if there are too few values for one."""
        return median_interval(self.values)


class Sample(NamedTuple):
    """The progress of a program at one time. CPU seconds count from the start of its processes."""

    at: float
    answers: int
    cpu: float = 0.0
    broker_cpu: float = 0.0


class Steady(NamedTuple):
    """The figures of the middle of a run."""

    per_second: float
    cpu_per_answer: float
    broker_cpu_per_answer: float


class Span(NamedTuple):
    """One task as its answer reports it, in seconds since the epoch."""

    worker: str
    started: float
    finished: float
    cpu: float


class Efficiency(NamedTuple):
    """The share of its processes' time that a replica spent in tasks.

    For ``together``, all processes count from the first start to the last finish of any, so an uneven start or end
    counts against the program. For ``each``, every process counts from its first start to its last finish.
    """

    together: float
    each: float


def quantile(values: Sequence[float], share: float) -> float:
    """Return the value that ``share`` of all do not exceed (nearest rank, no interpolation)."""
    if not values:
        raise ValueError("no values")
    rank = -int(-share * len(values) // 1)  # rounded up
    return sorted(values)[max(rank, 1) - 1]


def supported_quantile(values: Sequence[float], share: float) -> float | None:
    """Return the quantile, or None if fewer than ``BEYOND`` values lie beyond it, because it then means little."""
    return quantile(values, share) if len(values) * (1 - share) >= BEYOND - 1e-9 else None


def median_interval(values: Sequence[float]) -> tuple[float, float] | None:
    """Return the narrowest pair of ranked values that encloses the median with ``CONFIDENCE``, for any distribution.

    Each value is below the median with probability one half, so the ranks follow a binomial distribution. At least six
    values are necessary.
    """
    ranked, count = sorted(values), len(values)
    outside, cut = 0.0, 0
    while True:
        outside += 2 * math.comb(count, cut) / 2**count
        if outside > 1 - CONFIDENCE:
            break
        cut += 1
    return (ranked[cut - 1], ranked[count - cut]) if cut else None


def ratios(values: Sequence[float], reference: Sequence[float]) -> tuple[float, ...]:
    """Return ratios value by value, up to the shorter length: repetitions with the same index met equal conditions."""
    return tuple(one / other for one, other in zip(values, reference, strict=False))


def steady(samples: Sequence[Sample], total: int) -> Steady:
    """Return the figures between the times at which a tenth and nine tenths of ``total`` answers had arrived.

    If no sample lies between the two, all answers arrived at once after unobserved work, and the whole run counts.
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
    """Return the time at which that many answers had arrived, interpolated between two samples."""
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


def efficiency(spans: Iterable[Span]) -> Efficiency:
    """Return the efficiency. See ``Efficiency``."""
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
