"""``worker dlq``: lists dead letters and replays them."""

from __future__ import annotations

import datetime as dt
import heapq
import json
import sys
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, columns, count, echo, meter, show, stoppable
from worker.cli.dead_letters import matches, read_dead_letters
from worker.cli.dlq_show import show_dead_letters
from worker.cli.journal import Journal
from worker.cli.matching import matching
from worker.cli.replay import Plan, Replay, plan

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table


LIST_EPILOG = """\b
Examples:
  worker dlq list
  worker dlq list --match error_type=Reject --match replayed=no
  worker dlq list --match error_type=KeyError --match error_type=ValueError --json
"""
REPLAY_EPILOG = """\b
Examples:
  worker dlq replay --match 'error_message=*connection refused*' --dry-run
  worker dlq replay --match error_type=TimeoutError --limit 100 --yes

\b
The new request goes to the topic and the partition of the original, with the same key, value
and headers, and with the header x-replayed-from: <dead-letter topic>/<partition>/<offset>.
Each dead letter is replayed at most once. The topic <dead-letter topic>.replayed records this,
even if a replay is interrupted or killed. Run only one replay at a time.

\b
Exit codes: 0 all requests were sent, or there was nothing to send · 1 some were not confirmed,
or you answered no · 2 wrong settings or options · 4 Kafka is not reachable · 130 interrupted.
"""


@click.group(short_help="List, show and replay dead letters.")
def dlq() -> None:
    """List, show and replay dead letters: the requests that failed for good."""


dlq.add_command(show_dead_letters)


# ---------------------------------------------------------------- list


@dlq.command("list", epilog=LIST_EPILOG, short_help="List dead letters.")
@matching
@click.option("--limit", type=click.IntRange(min=1), default=100, show_default=True, help="List only the newest ones.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per dead letter instead of a table.")
def list_dead_letters(*, patterns: tuple[tuple[str, str], ...], limit: int, as_json: bool) -> None:
    """List dead letters with their origin, their error, and whether they were replayed."""
    access = Access()
    journal = Journal(access)
    found = [0]

    def rows() -> Iterator[dict[str, Any]]:
        for dead_letter in read_dead_letters(access):
            row = dead_letter.fields(replayed=journal.was_replayed(dead_letter))
            if matches(row, patterns):
                found[0] += 1
                yield row

    newest = heapq.nlargest(limit, rows(), key=lambda row: row["time_ms"])
    newest.reverse()
    if as_json:
        for row in newest:
            click.echo(json.dumps(row, ensure_ascii=False))
    else:
        show(_table(newest))
        echo(f"{len(newest)} of {count(found[0], 'dead letter')} in {access.settings.dead_letter_topic}")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = columns("time", "origin", "attempts", "error", "key", "replayed")
    for row in rows:
        time = dt.datetime.fromtimestamp(row["time_ms"] / 1000, dt.UTC)
        origin = f"{row['origin_topic']}/{row['origin_partition']}/{row['origin_offset']}"
        error = f"{row['error_type']}: {row['error_message']}"
        cells = f"{time:%F %T}Z", origin, str(row["attempts"]), error, row["key"], "yes" if row["replayed"] else ""
        table.add_row(*map(Text, cells))
    return table


# ---------------------------------------------------------------- replay


@dlq.command(epilog=REPLAY_EPILOG, short_help="Send the requests of dead letters again.")
@matching
@click.option("--limit", type=click.IntRange(min=1), help="Replay at most this many.")
@click.option("--dry-run", is_flag=True, help="Only print what would be sent.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation. (Without a terminal it never asks.)")
def replay(*, patterns: tuple[tuple[str, str], ...], limit: int | None, dry_run: bool, yes: bool) -> int:
    """Send the requests of dead letters again, to their original topic and partition."""
    access = Access()
    journal = Journal(access)
    what = plan(read_dead_letters(access), journal, patterns, limit)
    _explain(what)
    if patterns and not (what.chosen or what.obstacles):
        echo("no dead letter matches, or all that match were replayed before: `worker dlq list` shows their fields")
    if dry_run or not what.chosen:
        return 0
    question = f"Send {count(len(what.chosen), 'request')} to {', '.join(sorted(what.topics))}?"
    if not yes and sys.stdin.isatty() and not click.confirm(question, err=True):
        return 1
    running = Replay(access.sender(), journal)
    with stoppable() as stop, meter("replayed", len(what.chosen)) as progress:
        running.run(read_dead_letters(access), what, progress, stop)
    sent = f"{running.confirmed} of {count(len(what.chosen), 'request')} sent and confirmed"
    echo(sent + (", then interrupted" if stop else ""))
    for place, why in running.failed.items():
        echo(f"{place} not confirmed: {why}")
    return INTERRUPTED if stop else int(bool(running.failed))


def _explain(what: Plan) -> None:
    for place, why in what.obstacles.items():
        echo(f"{place} cannot be replayed: {why}")
    were = "was" if what.replayed == 1 else "were"
    echo(f"{count(len(what.chosen), 'dead letter')} to replay, {what.replayed} {were} replayed before")
