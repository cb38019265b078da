"""Renders the page of ``worker top`` for a width and a height. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text

from worker.cli.console import count
from worker.cli.layout import Column, Cut, line, titles, widest
from worker.cli.long_tasks import (
    SILENT,
    key_of,
    lasting,
    message_of,
    percent,
    running,
    seconds_of,
    state_of,
    style_of,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.cli.top_rates import Estimate, Rates
    from worker.core.task_state import TaskState

WIDE = 140  # width from which key and message have separate columns
ROOMY = 110  # width from which long names are shown in full
NARROW = 78  # width below which worker and attempt have no columns
_LEAST = 54  # columns; a narrower terminal cuts the lines
_BAR = 40  # columns of a bar, at most
_GROUP = 10  # columns of the group's name, at least


class Row(NamedTuple):
    """One running task. ``shown`` is its state from ``state_of``."""

    state: TaskState
    shown: str
    estimate: Estimate


class View(NamedTuple):
    """The content of the page. ``now`` is in seconds since the epoch; ``clock`` is the same for display."""

    group: str
    rows: Sequence[Row]
    waiting: int
    now: float
    clock: str


def view_of(group: str, states: Sequence[TaskState], rates: Rates, now: float, clock: str) -> View:
    """Return the view of these states."""
    found = running(states)
    rows = [Row(state, state_of(state, now), rates.of(state.origin, now)) for state in found]
    return View(group, rows, len(states) - len(found), now, clock)


def page(view: View, width: int, height: int) -> Text:
    """Return the page: at most ``height`` lines of at most ``width`` columns."""
    columns = _columns(view, width)
    lines = [_head(view, width), *([titles(columns)] if view.rows else [])]
    room = height - 4  # for the head, the titles, the total, and the line that counts the tasks left out
    for shown, row in enumerate(view.rows):
        block = _block(row, columns, view.now)
        if len(block) > room:
            lines.append(Text(f"and {count(len(view.rows) - shown, 'more task')}", "dim"))
            break
        lines += block
        room -= len(block)
    if view.rows:
        lines.append(_total(view, columns))
    for each in lines:
        each.truncate(width, overflow="ellipsis")
        each.rstrip()
    return Text("\n").join(lines)


def _columns(view: View, width: int) -> list[Column]:
    states = [row.state for row in view.rows]
    wide, roomy, narrow = width >= WIDE, width >= ROOMY, width < NARROW
    task = widest((str(state.origin) for state in states), 40 if roomy else 20, 4)
    worker = 0 if narrow else widest((state.worker for state in states), 24 if roomy else 14, 6)
    key = widest((key_of(state) or "-" for state in states), 24, 3) if wide else 0
    fixed = 31 if narrow else 36  # columns of fixed width, and gaps
    left = max(_LEAST, width) - fixed - task - worker - (key + 2 if wide else 0)
    bar = min(_BAR, max(8 if wide else 3, left // 3 if wide else left))
    return [
        Column("TASK", task, cut=Cut.TOPIC),
        Column("KEY", key),
        Column("WORKER", worker, cut=Cut.START),
        Column("ATT", 0 if narrow else 3, right=True),
        Column("TIME", 7, right=True),
        Column("PROGRESS", bar),
        Column("", 4, right=True),
        Column("RATE", 8, right=True),
        Column("LEFT", 7, right=True),
        Column("MESSAGE", max(10, left - bar) if wide else 0),
    ]


def _head(view: View, width: int) -> Text:
    """Return the group and the counts. A long group name is cut so that the rest fits."""
    silent = sum(row.shown == SILENT for row in view.rows)
    parts = [count(len(view.rows), "long task") if view.rows else "no long task"]
    parts += [f"{silent} silent"] * bool(silent) + [f"{view.waiting} waiting"] * bool(view.waiting)
    rest = ", ".join(["", *parts, view.clock])
    group = Text(f"group {view.group}")
    group.truncate(max(_GROUP, width - len(rest)), overflow="ellipsis")
    return Text.assemble(group, rest, style="bold")


def _block(row: Row, columns: list[Column], now: float) -> list[Text]:
    """Return the lines of a task. If the message has no column, it is below, with an unusual state."""
    state, style = row.state, style_of(row.shown)
    message = message_of(state, now)
    parts = [
        Text(str(state.origin), style),
        Text(key_of(state) or "-"),
        Text(state.worker),
        Text(str(state.attempt)),
        Text(lasting(seconds_of(state, now))),
        bar(state.progress, columns[5].width, style or "green"),
        Text(percent(state.progress)),
        Text(rate_text(row.estimate.rate)),
        Text(left_text(row.estimate.left)),
        message,
    ]
    below = message and not columns[-1].width
    return [line(columns, parts), *([Text("  ") + message] if below else [])]


LONGEST = 3650 * 86_400.0  # seconds: a later end is not shown as an estimate


def bar(progress: float | None, width: int, style: str) -> Text:
    """Return a progress bar; empty for a task that reports no progress."""
    full = int(min(1.0, max(0.0, progress or 0.0)) * width)
    return Text.assemble(("━" * full, style), ("─" * (width - full), "dim"))


def rate_text(rate: float | None) -> str:
    """Return percent per second, minute or hour: whichever gives a number of at least one."""
    if rate is None:
        return "-"
    per_hour = rate * 100 * 3600
    name, number = next(
        ((name, per_hour / size) for name, size in (("s", 3600), ("min", 60)) if per_hour >= size), ("h", per_hour)
    )
    return f"{number:.2g}%/{name}" if number < 10 else f"{number:.0f}%/{name}"  # noqa: PLR2004 - two digits


def left_text(left: float | None) -> str:
    """Return the time left; ``due`` when the task should have ended at its rate."""
    if left is None or left > LONGEST:
        return "-"
    return lasting(left) if left >= 1 else "due"


def _total(view: View, columns: list[Column]) -> Text:
    """Return the mean progress, and when the last of the tasks with an estimate ends."""
    known = [row.state.progress for row in view.rows if row.state.progress is not None]
    mean = sum(known) / len(known) if known else None
    ends = [row.estimate.left for row in view.rows if row.estimate.left is not None]
    unknown = len(view.rows) - len(ends)
    notice = f"{unknown} without an estimate" if unknown else ""
    texts = ("total", "", "", "", "", "", percent(mean), "", left_text(max(ends, default=None)), notice)
    parts = [Text(text, "bold") for text in texts]
    parts[5] = bar(mean, columns[5].width, "bold")
    return line(columns, parts)
