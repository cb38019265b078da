"""The check that no headline ratio is worse than the kept results by more than a fifth. Pure.

Ratios of programs that run in turn depend little on the machine, so results of different days can be compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.figures import TIMES
from benchmarks.names import BARE, EXTRA_SLOT, PARALLEL, PROCESS, SHARE, WORKER

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.figures import Figure

TOLERANCE = 0.2
EMPTY, TASKS = "engines-empty", "engines-tasks"  # workloads


class Headline(NamedTuple):
    """A figure that the documentation relies on, identified by workload, quantity, program and unit."""

    workload: str
    quantity: str
    program: str
    unit: str
    less_is_better: bool = False


HEADLINES = (
    Headline(EMPTY, "empty tasks", f"{WORKER} ÷ {BARE}", TIMES),
    Headline(EMPTY, "empty tasks", f"{WORKER} ÷ {PARALLEL}", TIMES),
    Headline(EMPTY, "empty tasks", f"{PROCESS} ÷ {WORKER}", TIMES),
    *(Headline(TASKS, f"{size} tasks", WORKER, SHARE) for size in ("1 ms", "10 ms", "100 ms")),
    Headline("latency", "idle round trip, p50", f"{WORKER} ÷ {BARE}", TIMES, less_is_better=True),
    Headline(TASKS, "10 ms tasks", f"{PROCESS} ÷ {WORKER}", TIMES),
    Headline("guarantees", "empty tasks", "exactly-once ÷ at-least-once", TIMES),
    Headline("short-behind-long", "10 ms tasks behind one of 20 s, last", WORKER, "s", less_is_better=True),
    Headline("short-behind-long", "10 ms tasks behind one of 20 s, last", EXTRA_SLOT, "s", less_is_better=True),
)
# The most important ones first.
WORKLOADS = (EMPTY, TASKS, "engines-idle", "short-behind-long", "latency", "guarantees")


class Change(NamedTuple):
    """The medians of a headline. ``kept`` or ``now`` is None if not measured."""

    headline: Headline
    kept: float | None
    now: float | None

    @property
    def failed(self) -> bool:
        """Return whether it was measured before and is now missing, or worse by more than the tolerance."""
        if self.kept is None:
            return False
        if self.now is None:
            return True
        worse = self.now / self.kept if self.headline.less_is_better else self.kept / self.now
        return worse > 1 / (1 - TOLERANCE)

    def __str__(self) -> str:
        name = f"{self.headline.quantity}, {self.headline.program}"
        kept, now = ("not measured" if value is None else f"{value:.3g}" for value in (self.kept, self.now))
        return f"{'FAIL' if self.failed else 'ok':4}  {name}: {now} (kept: {kept})"


def nothing_kept(changes: Iterable[Change]) -> bool:
    """Return whether no headline was measured before, so that there is nothing to compare with."""
    return all(change.kept is None for change in changes)


def compare(kept: Iterable[Figure], measured: Iterable[Figure]) -> list[Change]:
    """Return the change of every headline."""
    before, after = _medians(kept), _medians(measured)
    return [Change(headline, before.get(headline[:4]), after.get(headline[:4])) for headline in HEADLINES]


def _medians(figures: Iterable[Figure]) -> dict[tuple[str, str, str, str], float]:
    return {(one.workload, one.quantity, one.program, one.unit): one.median for one in figures}
