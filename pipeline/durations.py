"""From the buckets of a histogram to percentiles. Pure."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

from pipeline.transforms.workload import GROWTH, LEAST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_SHORTEST = LEAST * GROWTH  # of a value that was not set to the least
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 43200, 86400)
_POINTS = 120  # of a plot over time, at most


class Bucket(NamedTuple):
    """So many values between ``GROWTH**number`` and ``GROWTH**(number + 1)`` seconds, their sum and the greatest."""

    number: int
    values: int
    seconds: float
    longest: float


def merged(buckets: Iterable[Bucket]) -> list[Bucket]:
    """One bucket for each number, in order: those of several workers, days or audits put together."""
    found: dict[int, Bucket] = {}
    for one in buckets:
        other = found.get(one.number, Bucket(one.number, 0, 0.0, -math.inf))
        found[one.number] = Bucket(
            one.number, one.values + other.values, one.seconds + other.seconds, max(one.longest, other.longest)
        )
    return [found[number] for number in sorted(found)]


def middle(number: int) -> float:
    """The seconds that stand for a bucket: within 1 % of every value in it."""
    value = GROWTH ** (number + 0.5)
    return value if value > _SHORTEST else 0.0


def summary(buckets: Sequence[Bucket]) -> dict[str, Any]:
    """Count, mean, percentiles and the longest, in seconds. ``buckets`` are merged; {} if there are none."""
    count = sum(bucket.values for bucket in buckets)
    if not count:
        return {}
    longest = max(bucket.longest for bucket in buckets)
    shares = {name: min(_at(buckets, share * count), longest) for name, share in SHARES.items()}
    return {"count": count, "mean": sum(bucket.seconds for bucket in buckets) / count, **shares, "longest": longest}


def _at(buckets: Sequence[Bucket], rank: float) -> float:
    """The value that ``rank`` values are not above."""
    seen = 0
    for bucket in buckets:
        seen += bucket.values
        if seen >= rank:
            return middle(bucket.number)
    raise AssertionError("a rank is never beyond the count")


def step_of(seconds: float) -> int:
    """How many seconds a point in a plot stands for that covers so many."""
    return next((step for step in _STEPS if seconds / step <= _POINTS), _STEPS[-1])
