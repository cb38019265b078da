"""The figures as pictures: medians as bars, or as dots on logarithmic axes, where bars would mislead.

Thin lines go from the least to the greatest value.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl
from matplotlib.patches import Rectangle

from benchmarks.names import BOUND, MEMORY, PROGRAMS, SHARE, WORKER

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

    from benchmarks.figures import Figure

mpl.use("svg")
# Colours that are distinct for any colour vision (Okabe and Ito). The worker has the strongest one and its shades.
_WORKER = ("#D55E00", "#8C3E00", "#7A1F3D", "#F2A477", "#B23A48", "#D9C3B5")
_OTHERS = ("#999999", "#0072B2", "#56B4E9", "#CC79A7", "#009E73", "#7FCDBB", "#E69F00", "#F0E442", "#5D3A9B")
COLOURS = dict(zip(PROGRAMS, (*_WORKER, *_OTHERS), strict=True))
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "benchmarks",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "figure.constrained_layout.use": True,
}
_GROUP = 0.82  # of the distance between two groups of bars
_COLUMNS = 4  # of the legend
_LABEL = 20  # characters per line below a group
_ROOM = 24  # numbers side by side above the bars; more have to stand upright


class Picture(NamedTuple):
    """One plot with its figures, with a group of bars for each quantity."""

    name: str
    title: str
    axis: str
    wanted: Callable[[Figure], bool]
    logarithmic: bool = False
    line: float | None = None  # the value to compare the bars with


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
        _unit(SHARE, "tasks-", "engines-tasks"),
        line=1,
    ),
    Picture(
        "uneven",
        "Uneven tasks: time until the last is done ÷ lower bound (less is better)",
        "makespan ÷ max(sum ÷ processes, longest)",
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
        _unit(MEMORY, "peers"),
    ),
    Picture(
        "blocked",
        "Short tasks behind a long one: time until they are done (less is better)",
        "s (log)",
        # A lone mark compares nothing: the table of goals has that value.
        lambda figure: figure.workload == "short-behind-long" and figure.goal != "blocked, extra slot",
        logarithmic=True,
    ),
    Picture("startup", "Process start → first task running (less is better)", "s", _unit("s", "start-up")),
)


def draw(figures: Sequence[Figure], folder: Path) -> dict[str, str]:
    """Write every picture that has figures, and remove the others. Return the titles by the names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = {}
    for picture in PICTURES:
        file = folder / f"{picture.name}.svg"
        chosen = [figure for figure in figures if picture.wanted(figure) and _program(figure) in PROGRAMS]
        if chosen:
            _draw(picture, chosen, file)
            drawn[file.name] = picture.title
        else:
            file.unlink(missing_ok=True)
    return drawn


def _program(figure: Figure) -> str:
    """Return the program of a bar. For a ratio, it is the one that the worker is compared with."""
    return figure.program.removeprefix(f"{WORKER} ÷ ")


def _draw(picture: Picture, figures: Sequence[Figure], file: Path) -> None:
    from matplotlib import pyplot as plt  # noqa: PLC0415 - takes half a second, and only --write needs it

    groups = list(dict.fromkeys(figure.quantity for figure in figures))
    with mpl.rc_context(_STYLE):
        canvas, axes = plt.subplots(figsize=(9, 4))
        for position, quantity in enumerate(groups):
            bars = {_program(figure): figure for figure in figures if figure.quantity == quantity}
            ordered = [bars[name] for name in PROGRAMS if name in bars]
            _marks(axes, position, ordered, dots=picture.logarithmic, upright=len(figures) > _ROOM)
        _dress(axes, picture, groups)
        present = [name for name in PROGRAMS if any(_program(figure) == name for figure in figures)]
        handles = [Rectangle((0, 0), 1, 1, color=COLOURS[name]) for name in present]
        canvas.legend(handles, present, loc="outside lower center", ncols=min(len(present), _COLUMNS), frameon=False)
        canvas.savefig(file, metadata={"Date": None})
        plt.close(canvas)


def _marks(axes: Axes, position: int, figures: Sequence[Figure], *, dots: bool, upright: bool) -> None:
    width = _GROUP / max(len(figures), 3)
    for number, figure in enumerate(figures):
        at = position + (number - (len(figures) - 1) / 2) * width
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
            rotation="vertical" if upright else "horizontal",
        )


def _short(value: float) -> str:
    """Return the number with three digits, and thousands as k."""
    if value >= 1000:  # noqa: PLR2004 - the meaning of k
        return f"{_short(value / 1000)}k"
    return f"{value:#.3g}".rstrip(".")


def _tick(value: float, _position: float) -> str:
    """Return the number as an axis shows it: plain, and thousands as k."""
    return f"{value / 1000:g}k" if value >= 1000 else f"{value:g}"  # noqa: PLR2004 - as above


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
        axes.yaxis.set_major_formatter(_tick)
    else:
        axes.set_ylim(bottom=0)
