"""``worker submit``: sends requests and, if requested, waits for their answers."""

from __future__ import annotations

import math
import time
from typing import IO, TYPE_CHECKING, Any

import click

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, echo, stoppable
from worker.cli.inputs import from_arguments, from_file
from worker.cli.sending import Sent, send
from worker.cli.waiting import Answers, summary
from worker.client.ids import Origin, TaskId
from worker.core.deadline import Deadline
from worker.core.durations import duration
from worker.formats import FORMATS

if TYPE_CHECKING:
    from worker.cli.console import Stop
    from worker.cli.inputs import Source
    from worker.cli.tally import Tally

EPILOG = """\b
Examples:
  worker submit "payload 1" "payload 2"
  worker submit --file table.jsonl --job tuesday --wait --output answers.jsonl
  generate | worker submit --file - --wait --timeout 15m --expect-ok
  worker submit --file table.csv --ids ids.txt; worker wait --file ids.txt

\b
A JSON line is a string (the payload) or an object with the field payload and optionally
sequence, key and headers. A payload that is not a string is sent as JSON text. CSV has the
column payload and optionally sequence and key. The whole input is checked before anything is
sent. A request without a sequence gets --start plus its position in the input; one without a
key gets its sequence as key. With several request topics the first one is used.

\b
Exit codes: 0 every request was delivered and, with --wait, answered exactly once · 1 some
were not · 2 wrong input or settings · 4 Kafka or a topic is not reachable · 130 interrupted.
"""


class Duration(click.ParamType[float]):
    """Parses a duration as in the settings, to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else duration(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command(epilog=EPILOG, short_help="Send requests, and wait for their answers.")
@click.argument("payloads", nargs=-1)
@click.option("--file", metavar="FILE", help="Read requests from x.csv, x.jsonl or - (JSON lines on stdin).")
@click.option(
    "--start", default=1, show_default=True, help="Sequence of the first request; the next ones count up from it."
)
@click.option(
    "--job", metavar="NAME", help="Name of the job. Default keys are then NAME/0000000001, … instead of the sequence."
)
@click.option("--wait", "waits", is_flag=True, help="Wait until every request is answered, and print the outcomes.")
@click.option("--timeout", type=Duration(), default=math.inf, help="With --wait: give up after this time (90s, 15m).")
@click.option(
    "--output", type=click.File("w", lazy=False), help="With --wait: write each answer as a line of JSON; - is stdout."
)
@click.option("--expect-ok", is_flag=True, help="With --wait: exit with 1 unless every outcome is OK.")
@click.option(
    "--ids",
    type=click.File("w", lazy=False),
    help="Write the id of each confirmed request, one per line: see worker wait.",
)
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
    ids: IO[str] | None,
) -> int:
    """Send requests and, with --wait, wait for their answers."""
    if bool(payloads) == bool(file):
        raise click.UsageError("give the payloads either as arguments or with --file")
    if not waits and (output or expect_ok or timeout < math.inf):
        raise click.UsageError("--timeout, --output and --expect-ok need --wait")
    access = Access()
    encode = FORMATS[access.settings.message_format].encode_request
    source = from_file(file, start, job, encode) if file else from_arguments(payloads, start, job, encode)
    with source, stoppable() as stop:
        total = sum(1 for _ in source.items())  # checks the whole input before anything is sent
        if not total:
            raise click.UsageError("there is nothing to send: the input has no requests")
        answers = Answers(access) if waits else None
        started_ms = time.time_ns() // 1_000_000
        sent = _send(source, total, access, stop)
        if ids is not None:
            _write_ids(sent.tally, started_ms, ids)
        good = sent.confirmed == total
        if answers:
            answers.wait(sent.tally, output, Deadline.after(timeout, time.monotonic()), stop)
            good &= _report(sent.tally, expect_ok=expect_ok)
    return INTERRUPTED if stop else int(not good)


def _send(source: Source, total: int, access: Access, stop: Stop) -> Sent:
    topic = access.settings.request_topics[0]
    access.cluster.partitions(topic)  # without this, a missing topic would be reported only after a minute
    sent = send(source, total, topic, access.sender(), stop)
    echo(f"{sent.confirmed} of {total} requests delivered to {topic}" + (", then interrupted" if stop else ""))
    for problem in sent.problems():
        echo(problem)
    return sent


def _write_ids(tally: Tally, started_ms: int, file: IO[str]) -> None:
    file.writelines(f"{TaskId(Origin(*place, offset), started_ms)}\n" for place, offset in tally.unanswered())
    file.flush()


def _report(tally: Tally, *, expect_ok: bool) -> bool:
    """Print the summary. Return whether each request has exactly one answer (and, with ``expect_ok``, all are OK)."""
    for line in summary(tally):
        echo(line)
    return not (tally.open or tally.duplicates or (expect_ok and set(tally.outcomes) - {"OK"}))
