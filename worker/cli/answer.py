"""``worker answer``: prints the answers to requests with given keys."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import click

from worker.cli.access import Access
from worker.cli.answers import as_json
from worker.cli.console import INTERRUPTED, echo, stoppable
from worker.cli.submit import Duration
from worker.codec import MalformedError
from worker.formats import decode_answer
from worker.kafka.client_consumer import answers_since

if TYPE_CHECKING:
    from worker.core.model import Record

TIMEOUT = 30.0  # seconds without a reply from the broker

EPILOG = """\b
Examples:
  worker answer order-17
  worker answer order-17 order-18 --since 2h | jq -r .result

\b
Reads the ack topic from its beginning, or from --since on. A key that was used for several
requests has several answers.

\b
Exit codes: 0 every key has an answer · 1 a key has none · 2 wrong settings or options ·
4 Kafka or a topic is not reachable · 130 interrupted.
"""


@click.command(epilog=EPILOG)
@click.argument("keys", nargs=-1, required=True, metavar="KEY...")
@click.option("--since", type=Duration(), help="Read only answers younger than this (90s, 15m, 2h): much faster.")
def answer(*, keys: tuple[str, ...], since: float | None) -> int:
    """Print the answers to the requests with these keys, one JSON object per line."""
    access = Access()
    topic = access.settings.ack_topic
    properties = access.settings.client_properties() | {"group.id": access.settings.group}
    spans = access.cluster.spans(access.cluster.partitions(topic))
    since_ms = 0 if since is None else int((time.time() - since) * 1000)
    missing = {os.fsencode(key) for key in keys}
    wanted = frozenset(missing)
    with stoppable() as stop:
        for records in answers_since(properties, spans, since_ms, lambda: bool(stop), TIMEOUT):
            for record in records:
                if record.key in wanted and (line := _line(record)):
                    click.echo(line)
                    missing.discard(record.key)
    for key in sorted(missing):
        echo(f"{os.fsdecode(key)}: no answer in {topic}")
    return INTERRUPTED if stop else int(bool(missing))


def _line(record: Record) -> str | None:
    try:
        return json.dumps(as_json(record, decode_answer(record.value)), ensure_ascii=False)
    except MalformedError:
        return None  # not an answer, whatever its key
