"""The results for people (a terminal, Markdown) and for programs (JSON). Pure but for ``facts``."""

from __future__ import annotations

import os
import platform
import re
from dataclasses import asdict
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck
import psutil
from rich.table import Table

from benchmarks.goals import Verdict, verdicts
from benchmarks.programs import EndedError
from worker.errors import ExitCode

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.figures import Figure

METHOD = Path(__file__).with_name("method.md")
_DECIMALS = ((100, 0), (10, 1), (1, 2), (0, 3))  # from which size on, how many


class Trouble(NamedTuple):
    """Why a workload has no figures."""

    workload: str
    error: Exception

    def __str__(self) -> str:
        kind = "" if isinstance(self.error, EndedError) else f"{type(self.error).__name__}: "
        return f"{self.workload}: {kind}{self.error}"

    @property
    def failed(self) -> bool:
        """False where the worker only refused a setting, for what it cannot do yet."""
        return not (isinstance(self.error, EndedError) and self.error.code == ExitCode.SETTINGS_INVALID)


class Report(NamedTuple):
    """All there is to tell about one run of the suite."""

    figures: Sequence[Figure]
    troubles: Sequence[Trouble]
    facts: dict[str, str]


class Sheet(NamedTuple):
    """A table before it is drawn."""

    title: str
    header: tuple[str, ...]
    rows: Sequence[tuple[str, ...]]


def facts(broker_version: str, command: str, seconds: float, load: float) -> dict[str, str]:
    """Where, with what and how it was measured."""
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    cores = len(os.sched_getaffinity(0))
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{model[1] if model else platform.machine()}, {cores} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, Linux {platform.release()}",
        "versions": f"Python {platform.python_version()}, confluent-kafka {ck.__version__} "
        f"(librdkafka {ck.libversion()[0]}), protobuf {version('protobuf')}, Kafka {broker_version}",
        "other load": f"{load:.1f} processes on average wanted a core in the minute before the start",
        "command": f"{command} ({seconds:.0f} s)",
    }


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


def document(report: Report) -> str:
    """docs/benchmarks.md."""
    parts = [
        "# Benchmarks\n\nWritten by `scripts/bench --write`; change nothing here by hand.\n",
        "\n".join(f"- {name}: {value}" for name, value in report.facts.items()) + "\n",
        *(f"Not measured: {trouble}\n" for trouble in report.troubles),
        markdown(goals_sheet(report.figures)),
        METHOD.read_text(encoding="utf-8"),
        markdown(figures_sheet(report.figures)),
    ]
    return "\n".join(parts)


def as_json(report: Report) -> dict[str, Any]:
    """For programs: the figures with every value, and the goals."""
    return {
        "facts": report.facts,
        "troubles": [str(trouble) for trouble in report.troubles],
        "figures": [{**asdict(figure), "median": figure.median} for figure in report.figures],
        "goals": [
            {**goal._asdict(), "median": figure.median if figure else None, "verdict": Verdict(goal, figure).text}
            for goal, figure in verdicts(report.figures)
        ],
    }
