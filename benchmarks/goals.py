"""The goals, and whether the measurements reach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.figures import TIMES
from benchmarks.names import EFFICIENCY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from benchmarks.figures import Figure


class Goal(NamedTuple):
    """A number to reach, as a lower or an upper bound. With ``worst``, every value must reach it, not the median."""

    what: str
    against: str
    at_least: float | None = None
    at_most: float | None = None
    unit: str = ""
    worst: bool = False

    @property
    def text(self) -> str:
        """Return the bound as a text for tables, and whether every value has to reach it."""
        bound = f"≤ {self.at_most:g}" if self.at_least is None else f"≥ {self.at_least:,g}"
        return f"{bound} {self.unit}".rstrip() + (", every time" if self.worst else "")

    def reached(self, figure: Figure) -> bool:
        """Return whether the figure reaches the goal."""
        low, high = figure.spread if self.worst else (figure.median, figure.median)
        return (self.at_least is None or low >= self.at_least) and (self.at_most is None or high <= self.at_most)


_EFFICIENCY = f"CPU efficiency: {EFFICIENCY}"
_PROCESS = "process isolation"
_GREEDY = "greedy list schedule"
_BEHIND = "the last short task behind a long one, Kafka's default heartbeats"
_MEMORY = "memory of a worker process (PSS)"
_ROUND_TRIP = "idle worker, request produced → answer seen"

# By the name that figures refer to.
GOALS: dict[str, Goal] = {
    "bare": Goal("empty tasks/s, at-least-once", "the bare loop", at_least=0.3, unit=TIMES),
    "parallel-consumer": Goal("empty tasks/s, at-least-once", "parallel-consumer", at_least=4, unit=TIMES),
    "1 ms share": Goal("share of the cores in 1 ms tasks", "1", at_least=0.75),
    "exactly-once": Goal("empty tasks/s, exactly-once", "at-least-once", at_least=0.5, unit=TIMES),
    "exactly-once 10 ms": Goal(f"{_EFFICIENCY}, 10 ms tasks, exactly-once", "1", at_least=0.97),
    "10 ms": Goal(f"{_EFFICIENCY}, 10 ms tasks", "1", at_least=0.97),
    "100 ms": Goal(f"{_EFFICIENCY}, 100 ms tasks", "1", at_least=0.99),
    "1 s": Goal(f"{_EFFICIENCY}, 1 s tasks", "1", at_least=0.99),
    "p50": Goal(f"{_ROUND_TRIP}, p50", "the bare loop", at_most=1.5, unit=TIMES),
    "p99": Goal(f"{_ROUND_TRIP}, p99", "the bare loop", at_most=2, unit=TIMES),
    "pareto": Goal(
        "makespan of heavy-tailed tasks, detaching and an extra slot", "greedy list schedule", at_most=1.05, unit=TIMES
    ),
    "bimodal": Goal(
        "makespan, one long task in each hundred, detaching and an extra slot",
        "greedy list schedule",
        at_most=1.05,
        unit=TIMES,
    ),
    "blocked": Goal(_BEHIND, "", at_most=12, unit="s"),
    "blocked, extra slot": Goal(
        f"{_BEHIND}, no other replica, an extra slot, from when the task is long", "", at_most=5, unit="s"
    ),
    "process: empty": Goal(f"{_PROCESS}: empty tasks/s", "thread isolation", at_least=0.6, unit=TIMES),
    "process: 10 ms": Goal(f"{_PROCESS}: {_EFFICIENCY}, 10 ms tasks", "1", at_least=0.97),
    "process: 100 ms": Goal(f"{_PROCESS}: {_EFFICIENCY}, 100 ms tasks", "1", at_least=0.99),
    "process: latency": Goal(f"{_PROCESS}: idle p50, longer by", "thread isolation", at_most=0.1, unit="ms"),
    "process: memory": Goal(f"{_PROCESS}: idle memory, more by", "thread isolation", at_most=25, unit="MB"),
    "process: memory, scikit-learn": Goal(
        f"{_PROCESS}: idle memory with scikit-learn imported, more by", "thread isolation", at_most=25, unit="MB"
    ),
    "time-limit": Goal(f"{_PROCESS}: hard limit of time → next task", "", at_most=100, unit="ms"),
    "memory idle": Goal(f"{_MEMORY}, idle, empty handler", "", at_most=70, unit="MB", worst=True),
    "memory backlog": Goal(f"{_MEMORY}, backlog of 1 M requests", "", at_most=70, unit="MB", worst=True),
    "flat": Goal(f"{_MEMORY}, growth over that backlog", "", at_most=3, unit="MB", worst=True),
    "start-up": Goal("process start → first task running", "", at_most=3, unit="s"),
    "encode": Goal("pipeline: encoding requests", "mapInArrow and protobuf alone", at_least=0.7, unit=TIMES),
    "decode": Goal("pipeline: decoding answers", "mapInArrow and protobuf alone", at_least=0.7, unit=TIMES),
    "submit": Goal("pipeline: requests submitted exactly once", "", at_least=30_000, unit="/s"),
    "submit, of the sink": Goal("pipeline: the same", "Spark's plain Kafka sink", at_least=0.25, unit=TIMES),
    "audit": Goal(
        "pipeline: audit of 20 M requests, answers shuffled, with a broker, 2 GB heap", "", at_most=60, unit="s"
    ),
}


class Verdict(NamedTuple):
    """A goal, and its measured figure, if there is one."""

    goal: Goal
    figure: Figure | None

    @property
    def text(self) -> str:
        if self.figure is None:
            return "not measured"
        return "reached" if self.goal.reached(self.figure) else "NOT reached"


def verdicts(figures: Iterable[Figure]) -> list[Verdict]:
    """Return every goal with its figure."""
    measured = {figure.goal: figure for figure in figures if figure.goal}
    return [Verdict(goal, measured.get(name)) for name, goal in GOALS.items()]
