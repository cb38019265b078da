"""The plots of the report as PNG, from small tables, drawn without a display."""

from __future__ import annotations

import datetime as dt
import io
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator

from pipeline.audit.durations import middle
from pipeline.audit.workload import DELIVERY, LATENCY, WAIT, WORK
from pipeline.report.words import duration, shortened

if TYPE_CHECKING:
    from collections.abc import Mapping

    from matplotlib.axes import Axes

    from pipeline.audit.result import AuditResult

COLORS = {
    "OK": "#3f7fb5",
    "FAILED": "#e08a1e",
    "DEAD_LETTERED": "#c0392b",
    "EXPIRED": "#8e5ea2",
    "CANCELLED": "#7f8c8d",
}
OTHER = "#b0b7bd"
INK, FAINT = "#1c2430", "#d8dde3"
TITLES = {
    LATENCY: "Latency: sent to answered",
    WAIT: "Queue wait: sent to started",
    WORK: "Work: started to finished",
    DELIVERY: "Delivery: finished to answered",
}
_DAY = 86_400  # seconds
_WIDTH = 10.0  # inches; the page scales it to the width of its column
_MOST_BARS = 20
_BINS = 60
_STYLE: Any = {
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": "#8a93a0",
    "xtick.color": INK,
    "ytick.color": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": FAINT,
    "figure.facecolor": "white",
}


def _drawn(figure: Figure) -> bytes:
    buffer = io.BytesIO()
    FigureCanvasAgg(figure)
    figure.savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def _figure(height: float, columns: int = 1, rows: int = 1, **more: Any) -> tuple[Figure, Any]:
    figure = Figure(figsize=(_WIDTH, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **more)


def over_time(result: AuditResult) -> bytes | None:
    """Return a plot of answers per second, by outcome."""
    if not result.over_time:
        return None
    with mpl.rc_context(_STYLE):
        figure, grid = _figure(3.2)
        axes: Axes = grid[0][0]
        step = result.step
        first, last = result.over_time[0][0], result.over_time[-1][0]
        begins = [first + step * number for number in range(round((last - first) / step) + 1)]
        times = [begin / _DAY for begin in [*begins, last + step]]  # days since 1970, the unit of matplotlib
        floor = [0.0] * len(begins)
        for outcome in sorted(result.outcomes, key=_rank):
            found = {begin: answers / step for begin, name, answers in result.over_time if name == outcome}
            top = [below + found.get(begin, 0.0) for below, begin in zip(floor, begins, strict=True)]
            color = COLORS.get(outcome, OTHER)
            axes.stairs(top, times, baseline=floor, fill=True, color=color, label=outcome)
            floor = top
        axes.set(ylabel="answers a second", xlabel="time (UTC)", xlim=(times[0], times[-1]), ylim=(0, None))
        locator = AutoDateLocator()  # type: ignore[no-untyped-call]
        axes.xaxis.set_major_locator(locator)
        axes.xaxis.set_major_formatter(ConciseDateFormatter(locator, tz=dt.UTC))  # type: ignore[no-untyped-call]
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return _drawn(figure)


def _rank(outcome: str) -> int:
    names = list(COLORS)
    return names.index(outcome) if outcome in names else len(names)


def durations(result: AuditResult) -> bytes | None:
    """Return a plot of the durations of requests, one panel for each section, with the same axis."""
    metrics = [metric for metric in (LATENCY, WAIT, WORK) if result.histograms.get(metric)]
    if not metrics:
        return None
    with mpl.rc_context(_STYLE):
        figure, grid = _figure(1.75 * len(metrics) + 0.4, rows=len(metrics), sharex=True)
        for metric, row in zip(metrics, grid, strict=True):
            _histogram(row[0], result.histograms[metric], result.durations[metric], TITLES[metric])
        grid[-1][0].set_xlabel("time a request took (logarithmic)")
        return _drawn(figure)


def _histogram(axes: Axes, buckets: list[tuple[int, int]], summary: Mapping[str, float], title: str) -> None:
    # Values below a tenth of a millisecond are drawn at its edge: clocks are not more accurate.
    values = [max(middle(number), 1e-4) for number, _ in buckets]
    total = sum(count for _, count in buckets)
    shares = [100 * count / total for _, count in buckets]
    low, high = min(values) / 1.3, max(values) * 1.3
    edges = [low * (high / low) ** (number / _BINS) for number in range(_BINS + 1)]
    axes.set_xscale("log")
    axes.hist(values, bins=edges, weights=shares, color=COLORS["OK"])
    axes.set_title(title, loc="left", fontsize=10, fontweight="bold")
    axes.set_ylabel("% of requests")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: duration(value)))
    axes.xaxis.set_minor_formatter(FuncFormatter(lambda _value, _: ""))
    top = axes.get_ylim()[1]
    axes.set_ylim(0, top * 1.3)
    marks = {"p50": "right", "p99": "left"}
    for name, side in marks.items():
        value = max(summary[name], 1e-4)
        axes.axvline(value, color=INK, linewidth=1, linestyle="--")
        axes.annotate(
            f" {name} {duration(summary[name])} ",
            (value, top * 1.28),
            ha=side,
            va="top",
            fontsize=9,
        )


def workers(result: AuditResult) -> bytes | None:
    """Return a plot of each worker's seconds of work and CPU, the busiest first."""
    shown = sorted(result.workers, key=lambda worker: -(worker["work_seconds"] or 0))[:_MOST_BARS]
    if not shown:
        return None
    with mpl.rc_context(_STYLE):
        figure, grid = _figure(0.28 * len(shown) + 1.3)
        axes: Axes = grid[0][0]
        places = range(len(shown))
        axes.barh(places, [w["work_seconds"] or 0 for w in shown], height=0.72, color=COLORS["OK"], label="work")
        axes.barh(places, [w["cpu_seconds"] or 0 for w in shown], height=0.3, color=INK, label="of which CPU")
        axes.set_yticks(places, [shortened(w["worker"] or "(not named)", 32) for w in shown])
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        mean = sum(w["work_seconds"] or 0 for w in result.workers) / len(result.workers)
        axes.axvline(mean, color=COLORS["FAILED"], linewidth=1.5, linestyle="--", label="mean work")
        axes.set_xlabel("seconds")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.6g}"))
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)
        return _drawn(figure)


def errors(result: AuditResult) -> bytes | None:
    """Return a plot of failures by outcome and type."""
    shown = result.errors[:_MOST_BARS]
    if not shown:
        return None
    with mpl.rc_context(_STYLE):
        figure, grid = _figure(0.28 * len(shown) + 1.2)
        axes: Axes = grid[0][0]
        places = range(len(shown))
        colors = [COLORS.get(error["outcome"], OTHER) for error in shown]
        bars = axes.barh(places, [error["answers"] for error in shown], height=0.7, color=colors)
        axes.bar_label(bars, fmt="{:,.0f}", padding=3, fontsize=9)
        names = [f"{shortened(e['error_type'] or '(no type)', 34)} · {e['outcome'].lower()}" for e in shown]
        axes.set_yticks(places, names)
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.margins(x=0.1)
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        axes.set_xlabel("requests")
        return _drawn(figure)
