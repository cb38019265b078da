"""The progress of a job on stderr: a bar on a terminal, JSON lines otherwise. Results go to stdout."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Protocol

import click
from pyspark.sql.streaming.listener import StreamingQueryListener
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from pipeline.settings import ProgressStyle

EVERY = 5.0  # seconds between two JSON lines
_LOOK_EVERY = 0.5  # seconds between two readings of the progress


class Meter(Protocol):
    """A display of progress."""

    def show(self, done: int, total: int | None = None, **facts: Any) -> None:
        """Show that ``done`` are done now. Callable from any thread; raises nothing."""


def report(event: str, **facts: Any) -> None:
    """Print the result of a command as a line of JSON on stdout."""
    click.echo(json.dumps({"event": event, **facts}, ensure_ascii=False, default=str))


@contextlib.contextmanager
def meter(style: ProgressStyle, label: str, total: int | None = None) -> Iterator[Meter]:
    """Yield a meter in the given style. ``auto`` is a bar if stderr is a terminal."""
    if style == "auto":
        style = "bar" if sys.stderr.isatty() else "json"
    if style == "bar":
        with _progress() as progress:
            yield _Bar(progress, label, total)
    else:
        yield _Lines(label, total) if style == "json" else _Silence()


def _progress() -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=None),
        MofNCompleteColumn(),
        TextColumn("{task.fields[facts]}"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
    )


class _Bar:
    def __init__(self, progress: Progress, label: str, total: int | None) -> None:
        self._progress = progress
        self._task = progress.add_task(label, total=total, facts="")

    def show(self, done: int, total: int | None = None, **facts: Any) -> None:
        shown = " ".join(f"{name}={value}" for name, value in facts.items())
        self._progress.update(self._task, completed=done, total=total, facts=shown)


class _Lines:
    def __init__(self, label: str, total: int | None) -> None:
        self._label = label
        self._total = total
        self._said = time.monotonic()

    def show(self, done: int, total: int | None = None, **facts: Any) -> None:
        now = time.monotonic()
        self._total = total if total is not None else self._total
        if now - self._said >= EVERY or (done == self._total and done):
            self._said = now
            line = {"event": "progress", "of": self._label, "done": done, "total": self._total, **facts}
            click.echo(json.dumps(line, default=str), err=True)


class _Silence:
    def show(self, done: int, total: int | None = None, **facts: Any) -> None:
        pass


@contextlib.contextmanager
def watched(shown: Meter, look: Callable[[], int], total: int | None = None) -> Iterator[None]:
    """Call ``look`` at intervals on another thread, and show its result. Errors of ``look`` are ignored."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_LOOK_EVERY):
            with contextlib.suppress(Exception):
                shown.show(look(), total)

    thread = threading.Thread(target=watch, name="progress", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


class QueryProgress(StreamingQueryListener):
    """A display of the batches of a stream: rows so far, rows per second, and how many records are waiting.

    Spark calls it on another thread. The waiting records end at the last stable offset, because an open transaction
    hides the records behind it.
    """

    def __init__(self, shown: Meter) -> None:
        super().__init__()
        self._shown = shown
        self.rows = 0
        self.batches = 0

    def onQueryStarted(self, event: Any) -> None:  # noqa: N802 - Spark's name, as those below
        pass

    def onQueryProgress(self, event: Any) -> None:  # noqa: N802
        progress = event.progress
        self.rows += max(0, progress.numInputRows)
        self.batches += bool(progress.numInputRows)
        with contextlib.suppress(Exception):  # Spark silently removes a listener that raises
            waiting = sum(int(source.metrics.get("maxOffsetsBehindLatest", 0)) for source in progress.sources)
            rate = round(progress.processedRowsPerSecond or 0)
            self._shown.show(self.rows, self.rows + waiting, batch=progress.batchId, rows_per_second=rate)

    def onQueryIdle(self, event: Any) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: Any) -> None:  # noqa: N802
        pass
