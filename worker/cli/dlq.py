"""``worker dlq``: looking at dead letters and sending them again."""

from __future__ import annotations

import datetime as dt
import heapq
import json
import sys
from typing import TYPE_CHECKING, Any

import click
from rich.text import Text

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, columns, meter, say, show, stoppable
from worker.cli.journal import Journal
from worker.cli.letters import MATCHABLE
from worker.cli.replay import Plan, Replay, plan, read_letters

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.table import Table


LIST_EPILOG = """\b
Examples:
  worker dlq list
  worker dlq list --match error_type=Reject --json | jq .error_message
"""
REPLAY_EPILOG = """\b
Examples:
  worker dlq replay --match 'error_message=*connection refused*' --dry-run
  worker dlq replay --match error_type=TimeoutError --limit 100 --yes

\b
A letter is replayed once: the topic <dead-letter topic>.replayed remembers it, also when a
replay is interrupted or dies. One replay at a time. The new request has the header
x-replayed-from: <dead-letter topic>/<partition>/<offset>.

\b
Exit codes: 0 all were sent, or there was nothing to send · 1 some were not confirmed, or the
answer was no · 2 wrong settings or options · 4 Kafka out of reach · 130 interrupted.
"""


class Match(click.ParamType[tuple[str, str]]):
    """``field=pattern``."""

    name = "field=pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        field, equals, pattern = str(value).partition("=")
        if not equals or field not in MATCHABLE:
            self.fail(f"{value!r} must be FIELD=PATTERN, with FIELD one of {', '.join(MATCHABLE)}", param, ctx)
        return field, pattern


matching = click.option(
    "--match",
    "patterns",
    type=Match(),
    multiple=True,
    metavar="FIELD=PATTERN",
    help=f"Only letters that fit; * and ? as in file names. Fields: {', '.join(MATCHABLE)}. May be repeated.",
)


@click.group(short_help="List dead letters and send them again.")
def dlq() -> None:
    """Look at dead letters, the requests that could never succeed, and send them again."""


# ---------------------------------------------------------------- list


@dlq.command("list", epilog=LIST_EPILOG)
@matching
@click.option(
    "--limit", type=click.IntRange(min=1), default=100, show_default=True, help="At most so many, the newest."
)
@click.option("--json", "as_json", is_flag=True, help="One line of JSON for each letter, instead of a table.")
def list_letters(*, patterns: tuple[tuple[str, str], ...], limit: int, as_json: bool) -> None:
    """List dead letters: where they came from, why they are here, and whether they were replayed."""
    access = Access()
    journal = Journal(access)
    found = [0]

    def rows() -> Iterator[dict[str, Any]]:
        for letter in read_letters(access):
            if letter.matches(patterns):
                found[0] += 1
                yield {**letter.fields(), "replayed": journal.knows(letter)}

    newest = heapq.nlargest(limit, rows(), key=lambda row: row["time_ms"])
    newest.reverse()
    if as_json:
        for row in newest:
            click.echo(json.dumps(row, ensure_ascii=False))
    else:
        show(_table(newest))
        say(f"{len(newest)} of {found[0]} dead letters in {access.settings.dead_letter_topic}")


def _table(rows: list[dict[str, Any]]) -> Table:
    table = columns("time", "origin", "attempts", "error", "key", "replayed")
    for row in rows:
        time = dt.datetime.fromtimestamp(row["time_ms"] / 1000, dt.UTC)
        origin = f"{row['origin_topic']}[{row['origin_partition']}]@{row['origin_offset']}"
        error = f"{row['error_type']}: {row['error_message']}"
        cells = f"{time:%F %T}Z", origin, str(row["attempts"]), error, row["key"], "yes" if row["replayed"] else ""
        table.add_row(*map(Text, cells))
    return table


# ---------------------------------------------------------------- replay


@dlq.command(epilog=REPLAY_EPILOG)
@matching
@click.option("--limit", type=click.IntRange(min=1), help="At most so many, the first ones.")
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@click.option("--yes", is_flag=True, help="Do not ask (only a terminal is asked).")
def replay(*, patterns: tuple[tuple[str, str], ...], limit: int | None, dry_run: bool, yes: bool) -> int:
    """Send dead letters to the topic they came from, as they were."""
    access = Access()
    journal = Journal(access)
    what = plan(read_letters(access), journal, patterns, limit)
    _explain(what)
    if dry_run or not what.chosen:
        return 0
    question = f"Send {len(what.chosen)} requests to {', '.join(sorted(what.topics))}?"
    if not yes and sys.stdin.isatty() and not click.confirm(question, err=True):
        return 1
    doing = Replay(access.sender(), journal)
    with stoppable() as stop, meter("replayed", len(what.chosen)) as shown:
        doing.run(read_letters(access), what, shown, stop)
    say(f"{doing.confirmed} of {len(what.chosen)} requests sent and confirmed" + (", then interrupted" if stop else ""))
    for place, why in doing.failed.items():
        say(f"{place} not confirmed: {why}")
    return INTERRUPTED if stop else int(bool(doing.failed))


def _explain(what: Plan) -> None:
    for place, why in what.obstacles.items():
        say(f"{place} cannot be replayed: {why}")
    say(f"{len(what.chosen)} dead letters to replay, {what.replayed} were replayed before")
