"""The numbers that the design sets, and whether what was measured reaches them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.figures import TIMES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.figures import Figure


class Goal(NamedTuple):
    """A number to reach: at least so much, or at most. ``worst``: every value has to, not just the median."""

    what: str
    against: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    later: float | None = None  # the number to reach after this one
    worst: bool = False

    @property
    def text(self) -> str:
        """As the design writes it."""
        bound = f"≤ {self.at_most:g}" if self.at_least is None else f"≥ {self.at_least:,g}"
        later = f" (then {self.later:g})" if self.later else ""
        return f"{bound}{later} {self.unit}".rstrip()

    def reached(self, figure: Figure) -> bool:
        """Whether the figure is good enough."""
        low, high = figure.spread if self.worst else (figure.median, figure.median)
        return (self.at_least is None or low >= self.at_least) and (self.at_most is None or high <= self.at_most)


_EFFICIENCY = f"CPU efficiency: task time ÷ (processes {TIMES} time)"
_MEMORY = "memory of a worker process (PSS)"
_ROUND_TRIP = "idle worker, request produced → answer seen"

# By the name that figures refer to. "Flat" has no number in the design; 3 MB is this suite's reading of it.
GOALS: dict[str, Goal] = {
    "bare": Goal("empty tasks/s, at-least-once", "the bare loop", at_least=0.5, unit=TIMES, later=0.8),
    "exactly-once": Goal("empty tasks/s, exactly-once", "at-least-once", at_least=0.5, unit=TIMES),
    "exactly-once 10 ms": Goal(f"{_EFFICIENCY}, 10 ms tasks, exactly-once", "1", at_least=0.97),
    "10 ms": Goal(f"{_EFFICIENCY}, 10 ms tasks", "1", at_least=0.97),
    "100 ms": Goal(f"{_EFFICIENCY}, 100 ms tasks", "1", at_least=0.99),
    "1 s": Goal(f"{_EFFICIENCY}, 1 s tasks", "1", at_least=0.99),
    "simple": Goal("empty tasks/s, at-least-once", "the simple design", at_least=1000, unit=TIMES),
    "p50": Goal(f"{_ROUND_TRIP}, p50", "the bare loop", at_most=1.5, unit=TIMES),
    "p99": Goal(f"{_ROUND_TRIP}, p99", "the bare loop", at_most=2, unit=TIMES),
    "memory idle": Goal(f"{_MEMORY}, idle, empty handler", "", at_most=70, unit="MB", worst=True),
    "memory backlog": Goal(f"{_MEMORY}, backlog of 1 M requests", "", at_most=70, unit="MB", worst=True),
    "flat": Goal(f"{_MEMORY}, growth over that backlog", "", at_most=3, unit="MB", worst=True),
    "start-up": Goal("process start → first task running", "", at_most=3, unit="s"),
    "encode": Goal("pipeline: encoding requests", "mapInArrow and protobuf alone", at_least=0.7, unit=TIMES),
    "decode": Goal("pipeline: decoding answers", "mapInArrow and protobuf alone", at_least=0.7, unit=TIMES),
    "submit": Goal("pipeline: requests submitted exactly once", "", at_least=30_000, unit="/s"),
    "submit, of the sink": Goal("pipeline: the same", "Spark's plain Kafka sink", at_least=0.25, unit=TIMES),
    "audit": Goal("pipeline: audit of 20 M requests in a heap of 2 GB", "", at_most=60, unit="s"),
}


class Verdict(NamedTuple):
    """A goal beside what was measured for it, if anything was."""

    goal: Goal
    figure: Figure | None

    @property
    def text(self) -> str:
        if self.figure is None:
            return "not measured"
        return "reached" if self.goal.reached(self.figure) else "NOT reached"


def verdicts(figures: Iterable[Figure]) -> list[Verdict]:
    """Every goal, in the order of the design."""
    measured = {figure.goal: figure for figure in figures if figure.goal}
    return [Verdict(goal, measured.get(name)) for name, goal in GOALS.items()]
