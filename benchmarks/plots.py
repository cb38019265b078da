"""The figures as pictures: medians as bars, or as dots on logarithmic axes, where a bar's length means nothing.

Thin lines go from the least to the greatest value.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
from matplotlib.patches import Rectangle

from benchmarks.contest import BOUND, PROGRAMS, SHARE, WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.figures import Figure

mpl.use("svg")
# Colours that people with any colour vision tell apart (Okabe and Ito); the worker's own is the strongest.
COLOURS = dict(
    zip(PROGRAMS, ("#D55E00", "#999999", "#444444", "#0072B2", "#56B4E9", "#009E73", "#E69F00"), strict=True)
)
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}
_GROUP = 0.82  # of the room between two groups of bars
_LABEL = 20  # letters of a line below a group


class Picture(NamedTuple):
    """One plot: which figures it takes, one group of bars for each quantity."""

    name: str
    title: str
    axis: str
    wanted: Callable[[Figure], bool]
    logarithmic: bool = False
    line: float | None = None  # what the bars are to be compared with


def _unit(unit: str, *workloads: str) -> Callable[[Figure], bool]:
    return lambda figure: figure.unit == unit and any(figure.workload.startswith(name) for name in workloads)


PICTURES = (
    Picture(
        "ratios",
        "Empty tasks per second: the worker ÷ each of the others",
        "times as fast (log)",
        lambda figure: figure.program.startswith(f"{WORKER} ÷ ") and figure.workload in {"throughput", "peers"},
        logarithmic=True,
        line=1,
    ),
    Picture(
        "tasks",
        "CPU-bound tasks of one length: share of two cores that goes into tasks",
        "share of 1",
        _unit(SHARE, "tasks-"),
        line=1,
    ),
    Picture(
        "uneven",
        "Uneven tasks: time until the last is done ÷ lower bound (less is better)",
        "makespan ÷ max(sum ÷ 2, longest)",
        _unit(BOUND, "pareto", "bimodal", "keyed", "one-partition"),
        line=1,
    ),
    Picture(
        "throughput",
        "Empty tasks settled per second",
        "tasks/s (log)",
        _unit("tasks/s", "throughput", "peers"),
        logarithmic=True,
    ),
    Picture(
        "payload",
        "Empty tasks with payloads settled per second",
        "tasks/s (log)",
        _unit("tasks/s", "payload"),
        logarithmic=True,
    ),
    Picture(
        "latency",
        "Idle: one task sent → its answer seen (less is better)",
        "ms (log)",
        _unit("ms", "latency"),
        logarithmic=True,
    ),
    Picture(
        "memory",
        "Memory among empty tasks: PSS of all processes (less is better)",
        "MB",
        _unit("MB PSS, all processes", "peers"),
    ),
    Picture("startup", "Process start → first task running (less is better)", "s", _unit("s", "start-up")),
)


def draw(figures: Sequence[Figure], folder: Path) -> dict[str, str]:
    """Write the pictures that there are figures for: their titles by their names."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for picture in PICTURES:
        chosen = [figure for figure in figures if picture.wanted(figure) and _program(figure) in PROGRAMS]
        if chosen:
            _draw(picture, chosen, folder / f"{picture.name}.svg")
            drawn[f"{picture.name}.svg"] = picture.title
    return drawn


def _program(figure: Figure) -> str:
    """Whose bar it is: for a ratio the program that the worker is compared with."""
    return figure.program.removeprefix(f"{WORKER} ÷ ")


def _draw(picture: Picture, figures: Sequence[Figure], file: Path) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - takes half a second, and only --write needs it

    groups = list(dict.fromkeys(figure.quantity for figure in figures))
    with mpl.rc_context(_STYLE):
        canvas, axes = plt.subplots(figsize=(9, 3.6))
        for place, quantity in enumerate(groups):
            bars = {_program(figure): figure for figure in figures if figure.quantity == quantity}
            ordered = [bars[name] for name in PROGRAMS if name in bars]
            _marks(axes, place, ordered, dots=picture.logarithmic)
        _dress(axes, picture, groups)
        present = [name for name in PROGRAMS if any(_program(figure) == name for figure in figures)]
        handles = [Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in present]
        canvas.legend(handles, present, loc="outside lower center", ncols=len(present), frameon=False)
        canvas.savefig(file, metadata={"Date": None})
        plt.close(canvas)


def _marks(axes: Axes, place: int, figures: Sequence[Figure], *, dots: bool) -> None:
    width = _GROUP / max(len(figures), 3)
    for number, figure in enumerate(figures):
        at = place + (number - (len(figures) - 1) / 2) * width
        low, high = figure.spread
        if dots:
            axes.plot([at], [figure.median], "o", markersize=8, color=COLOURS[_program(figure)])
        else:
            axes.bar(at, figure.median, width * 0.92, color=COLOURS[_program(figure)])
        axes.plot([at, at], [low, high], color="black", linewidth=0.8)
        axes.annotate(
            _short(figure.median),
            (at, high),
            (0, 5 if dots else 2),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=7,
        )


def _short(value: float) -> str:
    """Three digits at most, thousands as k."""
    if value >= 1000:  # noqa: PLR2004 - what k means
        return f"{value / 1000:.3g}k"
    return f"{value:.3g}"


def _dress(axes: Axes, picture: Picture, groups: Sequence[str]) -> None:
    axes.set_title(picture.title, loc="left", fontsize=10)
    axes.set_ylabel(picture.axis)
    axes.set_xticks(range(len(groups)), [textwrap.fill(group, _LABEL) for group in groups])
    axes.set_xlim(-0.6, len(groups) - 0.4)
    axes.grid(axis="y", linewidth=0.4, alpha=0.5)
    axes.margins(y=0.15)
    if picture.line is not None:
        axes.axhline(picture.line, color="black", linewidth=0.8, linestyle="--", zorder=0.5)
    if picture.logarithmic:
        axes.set_yscale("log")
    else:
        axes.set_ylim(bottom=0)
