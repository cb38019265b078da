"""What the commands show while they work, and how they are stopped. Words go to stderr, data to stdout."""

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

LINE_EVERY = 5.0  # seconds between two lines where there is no terminal for a bar
WIDTH = 200  # columns of a table that goes to a file
INTERRUPTED = 130  # the exit code of a command ended by Ctrl-C, as shells have it


class Meter(Protocol):
    """Shows how much is done."""

    def show(self, done: int) -> None:
        """So many are done now."""


@contextlib.contextmanager
def meter(label: str, total: int) -> Iterator[Meter]:
    """A bar on a terminal, else a line now and then."""
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
        self._said = time.monotonic()

    def show(self, done: int) -> None:
        now = time.monotonic()
        if now - self._said >= LINE_EVERY:
            self._said = now
            say(f"{self._label}: {done} of {self._total}")


def say(text: str) -> None:
    """A line for the reader."""
    click.echo(text, err=True)


def columns(*titles: str) -> Table:
    """An empty table."""
    return Table(*titles, box=None, pad_edge=False)


def show(table: Table) -> None:
    """A table on stdout: as wide as the terminal, or wide enough for most where there is none."""
    Console(width=None if sys.stdout.isatty() else WIDTH).print(table)


class Stop:
    """Whether the command was asked to stop."""

    def __init__(self) -> None:
        self.asked = False

    def __bool__(self) -> bool:
        return self.asked


@contextlib.contextmanager
def stoppable() -> Iterator[Stop]:
    """The first Ctrl-C or SIGTERM asks the command to stop, the second ends it.

    The handler only sets a flag: one that raised inside a call of the Kafka client would lose what the call returns.
    """
    stop = Stop()

    def ask(number: int, _frame: object) -> None:
        stop.asked = True
        signal.signal(number, signal.SIG_DFL)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
