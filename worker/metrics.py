"""The metrics of one worker process: plain counters that its poll thread owns and publishes in snapshots."""

from __future__ import annotations

import bisect
from collections import defaultdict
from typing import TYPE_CHECKING, Any

from worker.vocabulary import BUCKETS

if TYPE_CHECKING:
    from collections.abc import Sequence


class Metrics:
    """Counters, gauges and histograms, named as in ``worker.vocabulary``. Used from one thread, without locks."""

    def __init__(self) -> None:
        self._counters: defaultdict[str, float] = defaultdict(float)
        self._labelled: defaultdict[str, defaultdict[str, float]] = defaultdict(lambda: defaultdict(float))
        self._gauges: dict[str, float | dict[str, float]] = {}
        self._histograms: dict[str, list[float]] = {}

    def add(self, name: str, amount: float = 1, label: str | None = None) -> None:
        """Increase a counter."""
        if label is None:
            self._counters[name] += amount
        else:
            self._labelled[name][label] += amount

    def set(self, name: str, value: float | dict[str, float]) -> None:
        """Set a gauge: to a number, or to a number per label."""
        self._gauges[name] = value

    def observe(self, name: str, observations: Sequence[float]) -> None:
        """Add observations (seconds) to a histogram: counts per bucket (the last one is infinity), then the sum."""
        row = self._histograms.get(name)
        if row is None:
            row = self._histograms[name] = [0.0] * (len(BUCKETS) + 2)
        below, ordered = 0, sorted(observations)  # with thousands at once, looking at each one would take too long
        for bucket, bound in enumerate(BUCKETS):
            upto = bisect.bisect_right(ordered, bound, below)
            row[bucket] += upto - below
            below = upto
        row[-2] += len(ordered) - below
        row[-1] += sum(ordered)

    def snapshot(self) -> dict[str, Any]:
        """Return everything JSON-ready: ``counters`` (a number, or a number per label), ``gauges``, ``histograms``."""
        return {
            "counters": {**self._counters, **{name: dict(row) for name, row in self._labelled.items()}},
            "gauges": dict(self._gauges),
            "histograms": {name: list(row) for name, row in self._histograms.items()},
        }
