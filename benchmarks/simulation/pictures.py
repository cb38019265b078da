"""The plots of docs/simulation.md."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import matplotlib as mpl

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from matplotlib.axes import Axes

mpl.use("svg")
_STYLE: Any = {
    "svg.fonttype": "none",
    "svg.hashsalt": "simulation",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.linewidth": 0.4,
    "grid.alpha": 0.5,
    "figure.constrained_layout.use": True,
}
# Distinct for any colour vision (Okabe and Ito).
_COLOURS = ("#D55E00", "#0072B2", "#009E73", "#999999", "#E69F00")
_MARKERS = "osD^v"
_FLOOR = 0.01  # seconds: smaller values are drawn here

Row = dict[str, Any]


class Panel(NamedTuple):
    value: str
    axis: str
    logarithmic: bool = True


class Picture(NamedTuple):
    """Curves over the varied setting of a sweep, with a panel for each value."""

    sweep: str
    axis: str
    panels: tuple[Panel, ...]
    logarithmic: bool = True


MEAN, P99 = Panel("mean_wait", "mean wait, s"), Panel("p99_wait", "99th percentile of waits, s")
PICTURES = (
    Picture("long after", "WORKER_LONG_AFTER, s", (P99, Panel("changes", "subscription changes per second"))),
    Picture("partitions per process", "partitions per process", (MEAN, P99)),
    Picture(
        "extra slots",
        "WORKER_EXTRA_SLOTS",
        (P99, Panel("stretch", "time ÷ length, long tasks", logarithmic=False)),
        logarithmic=False,
    ),
    Picture("load", "load: share of all CPUs", (MEAN, P99), logarithmic=False),
)


def draw(rows: Sequence[Row], folder: Path) -> None:
    """Write all pictures as SVG files."""
    from matplotlib import pyplot as plt  # noqa: PLC0415 - takes half a second, and only --write needs it

    folder.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(_STYLE):
        for picture in PICTURES:
            canvas, panels = plt.subplots(1, len(picture.panels), figsize=(9, 3.4))
            for axes, panel in zip(panels, picture.panels, strict=True):
                _curves(axes, [row for row in rows if row["sweep"] == picture.sweep], picture, panel)
            handles, names = panels[0].get_legend_handles_labels()
            canvas.legend(handles, names, loc="outside lower center", ncols=len(names), frameon=False)
            canvas.savefig(folder / f"{picture.sweep.replace(' ', '-')}.svg", metadata={"Date": None})
            plt.close(canvas)


def _curves(axes: Axes, rows: Sequence[Row], picture: Picture, panel: Panel) -> None:
    policies = list(dict.fromkeys(row["policy"] for row in rows))
    for number, policy in enumerate(policies):
        points = [(row["varied"], row[panel.value]) for row in rows if row["policy"] == policy]
        values = [max(value, _FLOOR) if panel.logarithmic else value for _, value in points]
        axes.plot([x for x, _ in points], values, _MARKERS[number] + "-", color=_COLOURS[number], label=policy)
    if picture.logarithmic:
        axes.set_xscale("log")
    if panel.logarithmic:
        axes.set_yscale("log")
    ticks = sorted({row["varied"] for row in rows})
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel(picture.axis)
    axes.set_ylabel(panel.axis)
