"""``worker status --watch``: shows lag, rate, remaining time, running tasks and new dead letters repeatedly."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import sys
import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from worker.cli.console import INTERRUPTED, columns, count, echo, stoppable
from worker.cli.dead_letters import DeadLetter
from worker.cli.progress import Look, Progress
from worker.cli.replicas import flat
from worker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.cli.access import Access
    from worker.cli.console import Stop
    from worker.kafka.reader import Reader

    Report = dict[str, Any]

INTERVAL = 2.0  # seconds
READ_LIMIT = 1.0  # seconds to read the new dead letters of one look
_STEP = 0.2  # seconds within which Ctrl-C takes effect
_TASK_COLUMNS = ("replica", "slot", "task", "key", "sequence", "attempt", "seconds")


def watch(access: Access, report: Callable[[], Report], *, as_json: bool) -> int:
    """Show the report, with rate and estimate, every ``INTERVAL`` seconds until Ctrl-C. Return the exit code."""
    with stoppable() as stop, contextlib.closing(Errors(access)) as errors:
        looks = _looks(report, errors, stop)
        if as_json or not sys.stdout.isatty():
            for look in looks:
                click.echo(json.dumps(look) if as_json else line(look))
        else:
            with Live(console=Console(), auto_refresh=False) as live:
                for look in looks:
                    live.update(_page(look), refresh=True)
    return INTERRUPTED


def _looks(report: Callable[[], Report], errors: Errors, stop: Stop) -> Iterator[Report]:
    progress, first = Progress(), True
    while not stop:
        now = time.monotonic()
        try:
            current, counts = report(), errors.count()
        except BrokerError as error:
            if first:
                raise
            echo(str(error))  # it may pass
            _pause(now, stop)
            continue
        first = False
        done = sum(row["end"] - row["lag"] for row in current["partitions"])
        progress.add(Look(now, done, current["lag"]))
        running = [row for process in current["processes"] for row in flat(process) if row["task"]]
        yield {
            "time": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            "group": current["group"],
            "members": len(current["members"]),
            "lag": current["lag"],
            "rate": _rounded(progress.rate),
            "remaining_seconds": _rounded(progress.remaining),
            "errors": dict(counts),
            "running": running,
        }
        _pause(now, stop)


def _pause(since: float, stop: Stop) -> None:
    while not stop and time.monotonic() < since + INTERVAL:
        time.sleep(_STEP)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)


class Errors:
    """Counts the error types of the dead letters written since its creation."""

    def __init__(self, access: Access) -> None:
        self._access = access
        self._counts: Counter[str] = Counter()
        self._reader: Reader | None = None
        self._open(at_end=True)

    def _open(self, *, at_end: bool) -> None:
        partitions = self._access.cluster.find(self._access.settings.dead_letter_topic)
        if partitions is not None:
            spans = self._access.cluster.spans(partitions)
            starts = {partition: span.end if at_end else span.start for partition, span in spans.items()}
            self._reader = self._access.reader(starts)

    def count(self) -> Counter[str]:
        """Read the new dead letters and return all counts so far."""
        if self._reader is None:  # the topic is created with the first dead letter
            self._open(at_end=False)
        limit = time.monotonic() + READ_LIMIT
        while self._reader is not None and time.monotonic() < limit:
            records = self._reader.poll(0.1)
            self._counts.update(DeadLetter(record).fields(replayed=False)["error_type"] for record in records)
            if not records and self._reader.at_end:
                break
        return self._counts

    def close(self) -> None:
        if self._reader is not None:
            self._reader.close()


def line(look: Report) -> str:
    """Return a look as one line."""
    return f"{look['time']} {_work(look)}, {len(look['running'])} running; {_errors(look)}"


def _work(look: Report) -> str:
    rate = "rate unknown" if look["rate"] is None else f"{look['rate']:g}/s"
    left = look["remaining_seconds"]
    return f"lag {look['lag']}, {rate}, {'no estimate' if left is None else f'done in about {_about(left)}'}"


def _about(seconds: float) -> str:
    for size, unit in ((3600.0, "h"), (60.0, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.0f} s"


def _errors(look: Report) -> str:
    found = ", ".join(f"{number} {name}" for name, number in sorted(look["errors"].items(), key=lambda e: -e[1]))
    return f"new dead letters: {found or 'none'}"


def _page(look: Report) -> Group:
    table = columns(*_TASK_COLUMNS)
    for process in look["running"]:
        table.add_row(*(Text("-" if process[name] is None else str(process[name])) for name in _TASK_COLUMNS))
    head = (
        f"group {look['group']}, {count(look['members'], 'member')}, {look['time']}\n{_work(look)}\n{_errors(look)}\n"
    )
    return Group(Text(head), table if look["running"] else Text("no running task is known"))
