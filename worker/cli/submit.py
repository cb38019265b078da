"""``worker submit``: sends requests and, if asked to, waits for their answers."""

from __future__ import annotations

import math
import time
from typing import IO, TYPE_CHECKING, Any

import click

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, say, stoppable
from worker.cli.inputs import from_arguments, from_file
from worker.cli.sending import Sent, send
from worker.cli.waiting import Answers, summary
from worker.core.deadline import Deadline
from worker.settings.values import duration

if TYPE_CHECKING:
    from worker.cli.console import Stop
    from worker.cli.inputs import Source
    from worker.cli.tally import Tally

EPILOG = """\b
Examples:
  worker submit "payload 1" "payload 2"
  worker submit --file table.jsonl --job tuesday --wait --output answers.jsonl
  generate | worker submit --file - --wait --timeout 15m --expect-ok

\b
A JSON line is a string, or an object with a payload (a string, or any JSON, which is then
sent as text) and optionally sequence, key and headers. CSV has the columns payload and
optionally sequence and key. Nothing is sent before the whole input was checked. With
several request topics the first is used.

\b
Exit codes: 0 all delivered and, with --wait, each answered exactly once · 1 not so ·
2 wrong input or settings · 4 Kafka or a topic out of reach · 130 interrupted.
"""


class Duration(click.ParamType[float]):
    """A duration as the settings write it, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(epilog=EPILOG)
@click.argument("payloads", nargs=-1)
@click.option("--file", metavar="FILE", help="Take the requests from x.csv, x.jsonl or - (JSON lines on stdin).")
@click.option("--start", default=1, show_default=True, help="First running number, for requests without a sequence.")
@click.option("--job", metavar="NAME", help="Make the default keys NAME/0000000001 and so on; else the sequence.")
@click.option("--wait", "waits", is_flag=True, help="Wait until each request is answered, and sum up the outcomes.")
@click.option("--timeout", type=Duration(), default=math.inf, help="With --wait: give up after so long (90s, 15m).")
@click.option("--output", type=click.File("w"), help="With --wait: write each answer as a line of JSON; - is stdout.")
@click.option("--expect-ok", is_flag=True, help="With --wait: fail unless every outcome is OK.")
def submit(
    *,
    payloads: tuple[str, ...],
    file: str | None,
    start: int,
    job: str | None,
    waits: bool,
    timeout: float,
    output: IO[str] | None,
    expect_ok: bool,
) -> int:
    """Send requests, each confirmed by Kafka, and wait for their answers if asked to."""
    if bool(payloads) == bool(file):
        raise click.UsageError("give the payloads as arguments or by --file: one of the two")
    if not waits and (output or expect_ok or timeout < math.inf):
        raise click.UsageError("--timeout, --output and --expect-ok need --wait")
    source = from_file(file, start, job) if file else from_arguments(payloads, start, job)
    with source, stoppable() as stop:
        total = sum(1 for _ in source.items())  # goes through all of it: a fault anywhere, and nothing is sent
        if not total:
            raise click.UsageError("there is nothing to send")
        access = Access()
        answers = Answers(access) if waits else None
        sent = _send(source, total, access, stop)
        good = sent.confirmed == total
        if answers:
            answers.wait(sent.tally, output, Deadline.after(timeout, time.monotonic()), stop)
            good &= _judge(sent.tally, expect_ok=expect_ok)
    return INTERRUPTED if stop else int(not good)


def _send(source: Source, total: int, access: Access, stop: Stop) -> Sent:
    topic = access.settings.request_topics[0]
    access.cluster.partitions(topic)  # without this, a topic that is missing would show after a minute
    sent = send(source, total, topic, access.sender(), stop)
    say(f"{sent.confirmed} of {total} requests delivered to {topic}" + (", then interrupted" if stop else ""))
    for complaint in sent.complaints():
        say(complaint)
    return sent


def _judge(tally: Tally, *, expect_ok: bool) -> bool:
    """Whether each request got exactly one answer, and OK if that is expected. Says what came of them."""
    for line in summary(tally):
        say(line)
    return not (tally.open or tally.duplicates or (expect_ok and set(tally.outcomes) - {"OK"}))
