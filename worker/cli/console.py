"""The output of the commands, and how to stop them. Messages go to stderr, data to stdout."""

from __future__ import annotations

import contextlib
import signal
import sys
import time
from typing import TYPE_CHECKING, Any, Protocol

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

if TYPE_CHECKING:
    from collections.abc import Iterator

LINE_EVERY = 5.0  # seconds between two lines if there is no terminal for a progress bar
WIDTH = 200  # columns of a table that is not printed on a terminal
INTERRUPTED = 130  # the exit code after Ctrl-C, by the convention of shells


class Meter(Protocol):
    """Shows the progress of a command."""

    def show(self, done: int) -> None:
        """Show that ``done`` are done now."""


@contextlib.contextmanager
def meter(label: str, total: int) -> Iterator[Meter]:
    """Show a progress bar on a terminal, otherwise a line every few seconds."""
    if sys.stderr.isatty():
        with _bar() as progress:
            task = progress.add_task(label, total=total)
            yield _Bar(progress, task)
    else:
        yield _Lines(label, total)


def _bar() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


class _Bar:
    def __init__(self, progress: Progress, task: Any) -> None:
        self._progress = progress
        self._task = task
        self._done = 0

    def show(self, done: int) -> None:
        if done != self._done:
            self._progress.update(self._task, completed=done)
            self._done = done


class _Lines:
    def __init__(self, label: str, total: int) -> None:
        self._label = label
        self._total = total
        self._shown_at = time.monotonic()

    def show(self, done: int) -> None:
        now = time.monotonic()
        if now - self._shown_at >= LINE_EVERY:
            self._shown_at = now
            echo(f"{self._label}: {done} of {self._total}")


def echo(text: str) -> None:
    """Print a message."""
    click.echo(text, err=True)


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 request``, ``2 requests``, ``3 processes``."""
    plural = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number} {noun}{plural}"


def columns(*titles: str) -> Table:
    """Return an empty table."""
    return Table(*titles, box=None, pad_edge=False)


def show(table: Table) -> None:
    """Print a table on stdout, as wide as the terminal, or ``WIDTH`` columns wide."""
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


class Stop:
    """Becomes true when a signal has asked the command to stop."""

    def __init__(self) -> None:
        self.requested = False

    def __bool__(self) -> bool:
        return self.requested


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """Handle signals: the first Ctrl-C or SIGTERM asks the command to stop, the second kills it.

    The handler only sets a flag, because an exception inside a call of the Kafka client would lose its result.
    """
    stop = Stop()

    def request(number: int, _frame: object) -> None:
        stop.requested = True
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, request) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
