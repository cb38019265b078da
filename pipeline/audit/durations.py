"""Percentiles from the buckets of a histogram. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.audit.workload import GROWTH, LEAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SHORTEST = LEAST * GROWTH  # of a value that was not raised to the least one
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_POINTS = 120  # of a plot over time at most


class Bucket(NamedTuple):
    """Count, sum and maximum of the values from ``GROWTH**number`` up to ``GROWTH**(number + 1)`` seconds."""

    number: int
    values: int
    seconds: float
    longest: float


def merged(buckets: Iterable[Bucket]) -> list[Bucket]:
    """Return one bucket for each number, in order, merged over several workers, days or audits."""
    found: dict[int, Bucket] = {}
    for one in buckets:
        other = found.get(one.number, Bucket(one.number, 0, 0.0, -math.inf))
        found[one.number] = Bucket(
            one.number, one.values + other.values, one.seconds + other.seconds, max(one.longest, other.longest)
        )
    return [found[number] for number in sorted(found)]


def middle(number: int) -> float:
    """Return the seconds that represent a bucket: within 1 % of every value in it."""
    value = GROWTH ** (number + 0.5)
    return value if value > _SHORTEST else 0.0


def summary(buckets: Sequence[Bucket]) -> dict[str, Any]:
    """Return count, mean, percentiles and maximum, in seconds; {} without merged ``buckets``."""
    count = sum(bucket.values for bucket in buckets)
    if not count:
        return {}
    longest = max(bucket.longest for bucket in buckets)
    shares = {name: min(_at(buckets, share * count), longest) for name, share in SHARES.items()}
    return {"count": count, "mean": sum(bucket.seconds for bucket in buckets) / count, **shares, "longest": longest}


def _at(buckets: Sequence[Bucket], rank: float) -> float:
    """Return the smallest value with at least ``rank`` values up to it."""
    seen = 0
    for bucket in buckets:
        seen += bucket.values
        if seen >= rank:
            return middle(bucket.number)
    raise AssertionError("a rank is never beyond the count")


def step_of(seconds: float) -> int:
    """Return the seconds per point of a plot that covers that many seconds."""
    return next((step for step in _STEPS if seconds / step <= _POINTS), _STEPS[-1])
