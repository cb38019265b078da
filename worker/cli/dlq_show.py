"""``worker dlq show``: prints everything about a dead letter, with the traceback from the answer."""

from __future__ import annotations

import datetime as dt
import heapq
import json
from typing import TYPE_CHECKING, Any

import click

from worker.cli.access import Access
from worker.cli.console import count, echo
from worker.cli.dead_letters import matches, read_dead_letters
from worker.cli.journal import Journal
from worker.cli.matching import matching
from worker.codec import MalformedError
from worker.formats import FORMATS, decode_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.cli.dead_letters import DeadLetter
    from worker.codec import Response
    from worker.core.model import Record

ANSWER_WINDOW = 60_000  # milliseconds between a dead letter and its answer, at most, because they are produced together

EPILOG = """\b
Examples:
  worker dlq show requests/3/17
  worker dlq show --match key=img-0269
  worker dlq show --match 'error_type=KeyError' --match replayed=no --limit 1 --json | jq -r .traceback

\b
ORIGIN is the topic/partition/offset of the request, as `worker dlq list` prints it. The position of
the dead letter itself works too. The traceback comes from the answer in KAFKA_ACK_TOPIC.

\b
Exit codes: 0 shown · 1 no such dead letter · 2 wrong settings or options · 4 Kafka is not reachable.
"""


@click.command("show", epilog=EPILOG, short_help="Show dead letters with payload, headers and traceback.")
@click.argument("origins", nargs=-1, metavar="[ORIGIN]...")
@matching
@click.option("--limit", type=click.IntRange(min=1), default=10, show_default=True, help="Show only the newest ones.")
@click.option("--json", "as_json", is_flag=True, help="Print a line of JSON per dead letter.")
def show_dead_letters(
    *, origins: tuple[str, ...], patterns: tuple[tuple[str, str], ...], limit: int, as_json: bool
) -> int:
    """Show dead letters with their payload, headers and traceback."""
    if bool(origins) == bool(patterns):
        raise click.UsageError("name the dead letters either by ORIGIN or with --match")
    access = Access()
    decode = FORMATS[access.settings.message_format].decode_request
    found = heapq.nlargest(limit, _chosen(access, origins, patterns), key=lambda chosen: chosen[1]["time_ms"])
    for dead_letter, fields in reversed(found):
        row = {**fields, **dead_letter.content(decode), "traceback": _traceback(access, dead_letter)}
        click.echo(json.dumps(row, ensure_ascii=False) if as_json else _page(row))
    if not found:
        echo(f"no such dead letter in {access.settings.dead_letter_topic}")
    elif not as_json:
        echo(f"{count(len(found), 'dead letter')} shown")
    return int(not found)


def _chosen(
    access: Access, origins: tuple[str, ...], patterns: tuple[tuple[str, str], ...]
) -> Iterator[tuple[DeadLetter, dict[str, Any]]]:
    journal = Journal(access)
    for dead_letter in read_dead_letters(access):
        fields = dead_letter.fields(replayed=journal.was_replayed(dead_letter))
        named = dead_letter.origin in origins or dead_letter.place in origins
        if named if origins else matches(fields, patterns):
            yield dead_letter, fields


def _traceback(access: Access, dead_letter: DeadLetter) -> str | None:
    """Return the traceback in the answer; None if there is no such answer or it has none."""
    time = dead_letter.record.timestamp_ms
    partitions = access.cluster.find(access.settings.ack_topic) or []
    starts = access.cluster.offsets_at(partitions, time - ANSWER_WINDOW)
    ends = access.cluster.offsets_at(partitions, time + ANSWER_WINDOW)
    left = {partition for partition in partitions if starts[partition] < ends[partition]}
    for record in access.read({partition: starts[partition] for partition in left}):
        response = _answer_to(dead_letter, record)
        if response is not None:
            return response.error.traceback or None
        if record.offset >= ends[record.partition] - 1:
            left.discard(record.partition)
            if not left:
                break
    return None


def _answer_to(dead_letter: DeadLetter, record: Record) -> Response | None:
    try:
        response = decode_answer(record.value)
    except MalformedError:
        return None
    origin = response.origin
    return response if f"{origin.topic}/{origin.partition}/{origin.offset}" == dead_letter.origin else None


def _page(row: dict[str, Any]) -> str:
    time = dt.datetime.fromtimestamp(row["time_ms"] / 1000, dt.UTC)
    lines = {
        "dead letter": row["place"],
        "time": f"{time:%F %T}Z",
        "origin": f"{row['origin_topic']}/{row['origin_partition']}/{row['origin_offset']}",
        "key": row["key"],
        "sequence": "-" if row["sequence"] is None else row["sequence"],
        "attempts": row["attempts"],
        "replayed": "yes" if row["replayed"] else "no",
        "error": f"{row['error_type']}: {row['error_message']}",
        "headers": ", ".join(f"{name}={value}" for name, value in row["headers"]) or "-",
        "payload": "(the value is not a Request)" if row["payload"] is None else row["payload"],
    }
    text = "".join(f"{name:<12} {value}\n" for name, value in lines.items())
    return text + (row["traceback"] or "(no traceback in the answer)\n")
