"""The results for people (a terminal, Markdown) and for programs (JSON). Pure."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from benchmarks.figures import CONFIDENCE
from benchmarks.goals import Verdict, verdicts
from benchmarks.names import LESS_IS_BETTER, PEERS, PROGRAMS, SHARE, WORKER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.figures import Figure

COMPARED = ("tasks/s", SHARE, *LESS_IS_BETTER)  # units
INTERVAL = f"{CONFIDENCE:.0%} interval"
_DECIMALS = ((100, 0), (10, 1), (1, 2), (0, 3))  # the number of decimals, by the smallest value


class Section(NamedTuple):
    """One workload: its figures, and when and how they were measured."""

    figures: Sequence[Figure]
    failures: Sequence[str]
    facts: dict[str, str]


class Report(NamedTuple):
    """All sections by the names of their workloads, and their common facts."""

    sections: dict[str, Section]
    facts: dict[str, str]

    @property
    def figures(self) -> list[Figure]:
        return [figure for section in self.sections.values() for figure in section.figures]

    @property
    def failures(self) -> list[str]:
        return [failure for section in self.sections.values() for failure in section.failures]

    def distinct(self, fact: str) -> list[str]:
        """Return the values of a fact of the sections."""
        return sorted({section.facts[fact] for section in self.sections.values() if fact in section.facts})


class Sheet(NamedTuple):
    """A table before it is drawn."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def number(value: float) -> str:
    """Return a number with about three digits."""
    decimals = next(count for size, count in _DECIMALS if abs(value) >= size)
    return f"{value:,.{decimals}f}"


def _spread(figure: Figure) -> tuple[str, str]:
    """Return the number of values and the interval of the median. Too few values have a range instead."""
    count = str(len(figure.values))
    if figure.interval:
        return count, " … ".join(map(number, figure.interval))
    if len(figure.values) == 1:
        return count, "one value"
    return count, f"range {number(figure.spread[0])} … {number(figure.spread[1])}"


def goals_sheet(figures: Sequence[Figure]) -> Sheet:
    """Return the goals with the measured numbers."""
    rows = []
    for verdict in verdicts(figures):
        goal, figure = verdict
        measured = (f"{number(figure.median)} {goal.unit}".rstrip(), *_spread(figure)) if figure else ("", "", "")
        command = f"`scripts/bench --only {figure.workload}`" if figure else ""
        rows.append((goal.what, goal.against, goal.text, *measured, command, verdict.text))
    header = ("what", "measured against", "goal", "median", "n", INTERVAL, "command", "")
    return Sheet("Goals", header, rows)


def comparison_sheet(figures: Sequence[Figure]) -> Sheet:
    """Return the medians of all that several programs did."""
    medians = {(figure.quantity, figure.unit, figure.program): figure.median for figure in figures}
    columns = [name for name in PROGRAMS if any(program == name for _, _, program in medians)]
    rows = []
    for quantity, unit in dict.fromkeys(key[:2] for key in medians):
        values = [medians.get((quantity, unit, name)) for name in columns]
        if unit in COMPARED and sum(value is not None for value in values) > 1:
            rows.append((quantity, unit, *("" if value is None else number(value) for value in values)))
    return Sheet("Comparison", ("what", "unit", *columns), rows)


def wins(figures: Sequence[Figure]) -> Sheet:
    """Return the quantities in which a peer's median is better than the worker's."""
    medians = {(figure.quantity, figure.unit, figure.program): figure for figure in figures}
    rows = []
    for (quantity, unit, program), figure in medians.items():
        ours = medians.get((quantity, unit, WORKER))
        if ours is None or program not in PEERS or unit not in COMPARED:
            continue
        more, less = (ours, figure) if unit in LESS_IS_BETTER else (figure, ours)
        if more.median > less.median:
            rows.append((quantity, unit, program, number(figure.median), number(ours.median)))
    return Sheet("Where a peer wins", ("what", "unit", "peer", "its median", "the worker's"), rows)


def figures_sheet(figures: Sequence[Figure]) -> Sheet:
    """Return all measured figures."""
    rows = [
        (figure.workload, figure.quantity, figure.program, number(figure.median), figure.unit, *_spread(figure))
        for figure in figures
    ]
    return Sheet("All figures", ("workload", "of", "program", "median", "unit", "n", INTERVAL), rows)


def terminal(sheet: Sheet) -> Table:
    """Return the table for rich."""
    table = Table(title=sheet.title, title_justify="left", header_style="bold")
    for name in sheet.header:
        table.add_column(name, justify="right" if name in ("median", "n") else "left")
    for row in sheet.rows:
        table.add_row(*row, style="red" if row[-1] == "NOT reached" else None)
    return table


def markdown(sheet: Sheet) -> str:
    """Return the table with its heading."""
    rule = tuple("---:" if name in ("median", "n") else "---" for name in sheet.header)
    lines = [sheet.header, rule, *sheet.rows]
    return "\n".join([f"## {sheet.title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def as_json(report: Report) -> dict[str, Any]:
    """Return the figures with every value, and the goals, for programs."""
    return {
        "facts": report.facts,
        "failures": report.failures,
        "figures": [{**asdict(figure), "median": figure.median} for figure in report.figures],
        "goals": [
            {**goal._asdict(), "median": figure.median if figure else None, "verdict": Verdict(goal, figure).text}
            for goal, figure in verdicts(report.figures)
        ],
    }
