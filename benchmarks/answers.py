"""Answers to users' questions: the worker's measured medians beside those of its best peer. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.figures import TIMES
from benchmarks.names import BOTH, BOUND, LESS_IS_BETTER, MEMORY, PEERS, SHARE, SHORT_WAIT, WORKER

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from benchmarks.figures import Figure

EQUAL = 1.1  # programs whose medians differ by less count as equal


class Question(NamedTuple):
    """A user's question, and the workloads that answer it, the most complete one first.

    ``quantity`` is the end of the figures' quantity. ``program`` is the worker with the settings for such tasks.
    """

    text: str
    unit: str
    workloads: tuple[str, ...]
    quantity: str = ""
    program: str = WORKER


QUESTIONS = (
    Question("Tasks of 1 s", SHARE, ("tasks-1s",)),
    Question("Tasks of 100 ms", SHARE, ("tasks-100ms", "engines-tasks"), "100 ms tasks"),
    Question("Tasks of 10 ms", SHARE, ("tasks-10ms", "engines-tasks"), "10 ms tasks"),
    Question("Tasks of 1 ms", SHARE, ("tasks-1ms", "engines-tasks"), "1 ms tasks"),
    Question("Empty tasks", "tasks/s", ("peers", "engines-empty")),
    Question("Short tasks behind a long one: the last is done after", "s", ("short-behind-long",), "last"),
    Question("Tasks of very different lengths: makespan", BOUND, ("pareto",), program=BOTH),
    Question("Tasks of very different lengths: mean wait of the short ones", "s", ("pareto",), SHORT_WAIT, BOTH),
    Question("One long task in each hundred: makespan", BOUND, ("bimodal",), program=BOTH),
    Question("One long task in each hundred: mean wait of the short ones", "s", ("bimodal",), SHORT_WAIT, BOTH),
    Question("Few frequent keys, their order kept: makespan", BOUND, ("keyed",)),
    Question("All requests in one partition: makespan", BOUND, ("one-partition",)),
    Question("One task at a time, idle: round trip", "ms", ("latency", "engines-idle"), "p50"),
    Question("Payloads of 500 KB", "tasks/s", ("payload-500KB",)),
    Question("Process start to first task", "s", ("start-up",)),
    Question("Memory of all processes, empty tasks", MEMORY, ("peers", "engines-empty")),
)


class Answer(NamedTuple):
    """An answer. ``ours`` and ``best`` are the figures of the worker and of its best peer, or None if not measured."""

    question: Question
    ours: Figure | None
    best: Figure | None

    @property
    def verdict(self) -> str:
        """Return the program that is ahead, and by how much. Overlapping intervals decide nothing."""
        if self.ours is None:
            return "not measured"
        if self.best is None:
            return "no peer measured"
        less = self.question.unit in LESS_IS_BETTER
        ahead = self.best.median / self.ours.median if less else self.ours.median / self.best.median
        if 1 / EQUAL < ahead < EQUAL:
            return "about equal"
        if _overlap(self.ours, self.best):
            return "not decided"
        return f"**worker**, {ahead:.3g} {TIMES}" if ahead > 1 else f"{self.best.program}, {1 / ahead:.3g} {TIMES}"

    @property
    def command(self) -> str:
        """Return the command that measures both again."""
        names = {figure.workload for figure in (self.ours, self.best) if figure is not None}
        return " ".join(["scripts/bench", *(f"--only {name}" for name in sorted(names or self.question.workloads[:1]))])


def answers(figures: Sequence[Figure]) -> list[Answer]:
    """Return an answer to each question."""
    return [_answer(question, figures) for question in QUESTIONS]


def _answer(question: Question, figures: Sequence[Figure]) -> Answer:
    for workload in question.workloads:
        found = {
            figure.program: figure
            for figure in figures
            if figure.workload == workload
            and figure.unit == question.unit
            and figure.quantity.endswith(question.quantity)
        }
        if question.program in found:
            return Answer(question, found[question.program], _best(question, found.values()))
    return Answer(question, None, None)


def _best(question: Question, found: Iterable[Figure]) -> Figure | None:
    choose = min if question.unit in LESS_IS_BETTER else max
    return choose((one for one in found if one.program in PEERS), key=lambda one: one.median, default=None)


def _overlap(one: Figure, other: Figure) -> bool:
    """Return whether the intervals of two medians overlap. Without an interval, all values count."""
    (low, high), (other_low, other_high) = (figure.interval or figure.spread for figure in (one, other))
    return low <= other_high and other_low <= high
