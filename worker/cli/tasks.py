"""``worker tasks``: shows the running long tasks of the whole group."""

from __future__ import annotations

import contextlib
import json
import sys
import time
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.text import Text

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, WIDTH, count, stoppable
from worker.cli.layout import Column, Cut, line, titles, widest
from worker.cli.long_tasks import as_json, key_of, lasting, percent, running, seconds_of, state_of, style_of
from worker.cli.state_topic import StateTopic

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.core.task_state import TaskState

WIDE = 110  # width from which key and message have separate columns
_LONGEST = 300  # characters of an origin

EPILOG = """\b
Examples:
  worker tasks
  worker tasks --json | jq -r '.[] | select(.state == "silent") | .worker'

\b
A task is long once it has run for WORKER_LONG_AFTER or has reported progress. The worker then
announces it on KAFKA_STATE_TOPIC. This command reads only that topic, so it needs no access to
the replicas.

\b
States: running · cancelling (it was asked to stop) · detached (it still runs, but its
partition has moved) · silent (its last heartbeat is older than 30 seconds, although one is
due every 10: its process is gone or stuck, or cannot reach Kafka).

\b
Exit codes: 0 printed · 2 wrong settings · 4 Kafka or the topic is not reachable · 130 interrupted.
"""


@click.command(epilog=EPILOG, short_help="Show the long tasks of the whole group.")
@click.option("--json", "prints_json", is_flag=True, help="Print a JSON array instead of a table.")
def tasks(*, prints_json: bool) -> int:
    """Show the long tasks that run now in the whole group."""
    with contextlib.closing(StateTopic(Access())) as topic, stoppable() as stop:
        topic.read(stop)
    if stop:
        return INTERRUPTED
    states, now = topic.states(), time.time()
    found = running(states)
    if prints_json:
        click.echo(json.dumps([as_json(state, now) for state in found], indent=2, ensure_ascii=False))
        return 0
    console = Console(width=None if sys.stdout.isatty() else WIDTH, highlight=False)
    for each in lines_of(found, now, console.width):
        console.print(each, soft_wrap=True)
    click.echo(_summary(len(found), len(states) - len(found)))
    return 0


def lines_of(states: list[TaskState], now: float, width: int) -> Iterator[Text]:
    """Yield a line for each task below the titles. A narrow page has key and message in a second line.

    Origins are not shortened, so that they can be copied. With very long topic names a line may exceed ``width``.
    """
    columns = _columns(states, width)
    if states:
        yield titles(columns)
    for state in states:
        key, message, shown = key_of(state) or "-", " ".join(state.message.split()), state_of(state, now)
        yield line(
            columns,
            [
                str(state.origin),
                key,
                state.worker,
                str(state.attempt),
                lasting(seconds_of(state, now)),
                percent(state.progress),
                Text(shown, style_of(shown)),
                message,
            ],
        )
        if width < WIDE and (state.key or message):
            below = Text(f"  {key}  {message}".rstrip(), "dim")
            below.truncate(width, overflow="ellipsis")
            yield below


def _columns(states: list[TaskState], width: int) -> list[Column]:
    wide = width >= WIDE
    task = widest((str(state.origin) for state in states), _LONGEST, 4)
    worker = widest((state.worker for state in states), 32 if wide else max(14, width - task - 35), 6)
    key = widest((key_of(state) or "-" for state in states), 24, 3) if wide else 0
    message = max(20, width - task - worker - key - 36) if wide else 0
    return [
        Column("TASK", task),
        Column("KEY", key),
        Column("WORKER", worker, cut=Cut.START),
        Column("ATT", 3, right=True),
        Column("TIME", 7, right=True),
        Column("DONE", 4, right=True),
        Column("STATE", 10),
        Column("MESSAGE", message),
    ]


def _summary(running: int, waiting: int) -> str:
    more = f"{waiting} waiting for the next start" if waiting else ""
    return ", ".join(filter(None, [count(running, "long task") if running else "no long task runs", more]))
