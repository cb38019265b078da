"""The results for people (a terminal, Markdown) and for programs (JSON). Pure."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.table import Table

from benchmarks.contest import BOUND, PROGRAMS, PROGRAMS_BESIDE, RECEIVED, SHARE, WORKER
from benchmarks.environments import MissingError
from benchmarks.goals import Verdict, verdicts
from benchmarks.programs import EndedError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from benchmarks.figures import Figure

METHOD = Path(__file__).with_name("method.md")
LESS_IS_BETTER = ("CPU µs/task", "MB PSS, all processes", "ms", "s", BOUND, RECEIVED)  # units
COMPARED = ("tasks/s", SHARE, *LESS_IS_BETTER)
PEERS = PROGRAMS_BESIDE[2:]
_PARTITIONS = "one queue for all its processes, where each of the worker's has its own partitions"
_GROUP = "no group, or one consumer alone in it; the worker's processes join one by one, and wait for heartbeats"
_AHEAD = "each of the worker's processes has Kafka clients of its own, with what they fetch ahead and send"
_SERVER = "the broker shares the cores, and takes more of them than the peer's server: see the server's CPU per task"
_MOVED = "7 to 10 MB above the bare loop's, whatever the requests' size: what is fetched of partitions that then move"
_FETCHES = "its client holds 4 MB ahead, eight such requests, so that memory stays small, and then waits for the next"
_ALONE = "the bare loop, in turns with the worker, takes about as long; the peers were measured alone"
# Why a peer may be ahead: by workload, or by unit.
WHY = dict.fromkeys(("pareto", "bimodal", "keyed", "one-partition"), _PARTITIONS)
WHY |= {"start-up": _GROUP, "MB PSS, all processes": _AHEAD, SHARE: _SERVER, RECEIVED: _MOVED}
WHY |= {"payload-500KB": _FETCHES, "latency": _ALONE}
_DECIMALS = ((100, 0), (10, 1), (1, 2), (0, 3))  # from which size on, how many


class Trouble(NamedTuple):
    """Why a program has no figures in a workload. ``program`` is empty where the workload itself failed."""

    workload: str
    program: str
    error: Exception

    def __str__(self) -> str:
        kind = "" if isinstance(self.error, EndedError | MissingError) else f"{type(self.error).__name__}: "
        return f"{self.workload}: {self.program + ': ' if self.program else ''}{kind}{self.error}"

    @property
    def failed(self) -> bool:
        """False where a peer failed: that is told, and no fault of the suite."""
        return self.program not in PROGRAMS_BESIDE


class Piece(NamedTuple):
    """One workload: what was measured, when and how."""

    figures: Sequence[Figure]
    troubles: Sequence[str]
    facts: dict[str, str]


class Report(NamedTuple):
    """All there is to tell: the pieces by the names of their workloads, and what they have in common."""

    pieces: dict[str, Piece]
    facts: dict[str, str]

    @property
    def figures(self) -> list[Figure]:
        return [figure for piece in self.pieces.values() for figure in piece.figures]

    @property
    def troubles(self) -> list[str]:
        return [trouble for piece in self.pieces.values() for trouble in piece.troubles]


class Sheet(NamedTuple):
    """A table before it is drawn."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def number(value: float) -> str:
    """Three digits or so."""
    decimals = next(count for size, count in _DECIMALS if abs(value) >= size)
    return f"{value:,.{decimals}f}"


def _spread(figure: Figure) -> str:
    if len(figure.values) == 1:
        return "one value"
    return f"{number(figure.spread[0])} … {number(figure.spread[1])} ({len(figure.values)})"


def goals_sheet(figures: Sequence[Figure]) -> Sheet:
    """Ratios first: the numbers of the design beside the measured ones."""
    rows = []
    for verdict in verdicts(figures):
        goal, figure = verdict
        measured = (f"{number(figure.median)} {goal.unit}".rstrip(), _spread(figure)) if figure else ("", "")
        rows.append((goal.what, goal.against, goal.text, *measured, verdict.text))
    header = ("what", "measured against", "reach", "median", "from … to (values)", "")
    return Sheet("Numbers to reach", header, rows)


def matrix(figures: Sequence[Figure]) -> Sheet:
    """The programs beside each other: medians of what several of them did."""
    medians = {(figure.quantity, figure.unit, figure.program): figure.median for figure in figures}
    columns = [name for name in PROGRAMS if any(program == name for _, _, program in medians)]
    rows = []
    for quantity, unit in dict.fromkeys(key[:2] for key in medians):
        cells = [medians.get((quantity, unit, name)) for name in columns]
        if unit in COMPARED and sum(cell is not None for cell in cells) > 1:
            rows.append((quantity, unit, *("" if cell is None else number(cell) for cell in cells)))
    return Sheet("Beside the others", ("what", "unit", *columns), rows)


def wins(figures: Sequence[Figure]) -> Sheet:
    """Where a peer is ahead of the worker. The bare loop and the simple design are yardsticks, nobody's choice."""
    medians = {(figure.quantity, figure.unit, figure.program): figure for figure in figures}
    rows = []
    for (quantity, unit, program), figure in medians.items():
        ours = medians.get((quantity, unit, WORKER))
        if ours is None or program not in PEERS or unit not in COMPARED:
            continue
        more, less = (ours, figure) if unit in LESS_IS_BETTER else (figure, ours)
        if more.median > less.median:
            why = WHY.get(unit) or WHY.get(figure.workload, "")
            rows.append((quantity, unit, program, number(figure.median), number(ours.median), why))
    return Sheet("Where a peer wins", ("what", "unit", "peer", "its median", "the worker's", "why"), rows)


def figures_sheet(figures: Sequence[Figure]) -> Sheet:
    """Everything that was measured."""
    rows = [
        (figure.workload, figure.quantity, figure.program, number(figure.median), figure.unit, _spread(figure))
        for figure in figures
    ]
    return Sheet("Everything measured", ("workload", "of", "program", "median", "unit", "from … to (values)"), rows)


def terminal(sheet: Sheet) -> Table:
    """For rich."""
    table = Table(title=sheet.title, title_justify="left", header_style="bold")
    for name in sheet.header:
        table.add_column(name, justify="right" if name == "median" else "left")
    for row in sheet.rows:
        table.add_row(*row, style="red" if row[-1] == "NOT reached" else None)
    return table


def markdown(sheet: Sheet) -> str:
    """A table with its heading."""
    lines = [sheet.header, tuple("---:" if name == "median" else "---" for name in sheet.header), *sheet.rows]
    return "\n".join([f"## {sheet.title}", "", *(f"| {' | '.join(line)} |" for line in lines), ""])


def pieces_sheet(pieces: dict[str, Piece]) -> Sheet:
    """When and how each workload was measured."""
    names = list(dict.fromkeys(name for piece in pieces.values() for name in piece.facts))
    rows = [(name, *(piece.facts.get(each, "") for each in names)) for name, piece in pieces.items()]
    return Sheet("When it was measured", ("workload", *names), rows)


def document(report: Report, pictures: Mapping[str, str]) -> str:
    """docs/benchmarks.md. ``pictures``: what each shows, by its path seen from there."""
    parts = [
        "# Benchmarks\n\nWritten by `scripts/bench --write`; change nothing here by hand.\n",
        "\n".join(f"- {name}: {value}" for name, value in report.facts.items()) + "\n",
        markdown(goals_sheet(report.figures)),
        markdown(matrix(report.figures)),
        markdown(wins(report.figures)),
        *(f"![{text}]({path})\n" for path, text in pictures.items()),
        "## Not measured\n\n" + "".join(f"- {trouble}\n" for trouble in report.troubles) if report.troubles else "",
        METHOD.read_text(encoding="utf-8"),
        markdown(pieces_sheet(report.pieces)),
        markdown(figures_sheet(report.figures)),
    ]
    return "\n".join(part for part in parts if part)


def as_json(report: Report) -> dict[str, Any]:
    """For programs: the figures with every value, and the goals."""
    return {
        "facts": report.facts,
        "troubles": report.troubles,
        "figures": [{**asdict(figure), "median": figure.median} for figure in report.figures],
        "goals": [
            {**goal._asdict(), "median": figure.median if figure else None, "verdict": Verdict(goal, figure).text}
            for goal, figure in verdicts(report.figures)
        ],
    }
