"""``worker cancel``: cancels waiting or running requests by origin, key or job."""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from typing import TYPE_CHECKING

import click

from worker.cli.access import Access
from worker.cli.answers import outcome_of
from worker.cli.backlog import Backlog
from worker.cli.cancel_reach import Cancellation, Reach
from worker.cli.cancel_targets import Targets, by_key, by_origin, of_job
from worker.cli.console import INTERRUPTED, count, echo, stoppable
from worker.cli.state_topic import StateTopic, needing, topic_of
from worker.cli.submit import Duration
from worker.codec import MalformedError
from worker.core.deadline import Deadline
from worker.core.task_state import CancelRequest, Origin
from worker.errors import BrokerError
from worker.formats import decode_answer
from worker.kafka.sender import Outgoing, deliver
from worker.state.records import cancel_key, encode_cancel, partition_of

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from worker.cli.console import Stop
    from worker.core.model import Partition, Record
    from worker.kafka.reader import Reader

CLOCKS = 60_000  # milliseconds by which the clocks of the writers of requests and answers may differ

EPILOG = """\b
Examples:
  worker cancel requests/3/1042
  worker cancel --key order-17 --key order-18
  worker cancel --all-of tuesday --timeout 2m

\b
A waiting request is answered CANCELLED and never starts. A running request is asked to stop:
its context.cancelled is set with the reason "requested", and with WORKER_ISOLATION=process it is
killed WORKER_CANCEL_GRACE later. When it ends, it is answered CANCELLED too.

\b
ORIGIN can also be an id from worker submit --ids or from a client.

\b
Prints one line for each request:
  answered already          it has an answer; nothing has changed
  cancelled (never started) it was answered CANCELLED before a start
  cancelled                 it had started, and was answered CANCELLED
  asked to stop             it is running and was asked to stop
  not reached yet           no worker has fetched it within --timeout; it is cancelled when one does

\b
You need permission to write to KAFKA_STATE_TOPIC.

\b
Exit codes: 0 every request was reached or had an answer · 1 some were not reached, or no request
has this key or job · 2 wrong usage or settings · 4 Kafka or a topic is not reachable ·
130 interrupted.
"""


@click.command(epilog=EPILOG, short_help="Cancel waiting and running requests.")
@click.argument("names", nargs=-1, metavar="[ORIGIN]...")
@click.option("--key", "keys", multiple=True, metavar="KEY", help="Cancel the unanswered requests with this key.")
@click.option(
    "--all-of", "job", metavar="JOB", help="Cancel the unanswered requests of a job of the pipeline or worker submit."
)
@click.option("--timeout", type=Duration(), default="30s", show_default=True, help="How long to wait at most.")
def cancel(*, names: tuple[str, ...], keys: tuple[str, ...], job: str | None, timeout: float) -> int:
    """Cancel waiting or running requests. ORIGIN is topic/partition/offset."""
    if sum(map(bool, (names and not keys, keys, job))) != 1:
        raise click.UsageError("name the requests either by ORIGIN, or with --key, or with --all-of")
    access = Access()
    topic_of(access)
    with stoppable() as stop:
        targets = _targets(access, (*keys, *names), stop, by_keys=bool(keys), job=job)
        if targets is None:
            return INTERRUPTED
        cancellation = Cancellation(targets.keys, targets.answered)
        if cancellation.open:
            _cancel(access, cancellation, Deadline.after(timeout, time.monotonic()), stop)
    good = _report(targets, cancellation)
    return INTERRUPTED if stop else int(not good)


def _targets(access: Access, names: tuple[str, ...], stop: Stop, *, by_keys: bool, job: str | None) -> Targets | None:
    """Return the selected requests; None if the command was stopped."""
    with contextlib.closing(StateTopic(access)) as topic:
        topic.read(stop)
    if stop:
        return None
    backlog, states = Backlog(access), topic.states()
    if job:
        return of_job(job, backlog, states)
    if by_keys:
        return by_key(names, backlog, states)
    return by_origin(names, backlog, topic.table.states)


# ---------------------------------------------------------------- write, and follow


def _cancel(access: Access, cancellation: Cancellation, deadline: Deadline, stop: Stop) -> None:
    """Write the cancel requests and follow their progress."""
    wanted = cancellation.open
    starts = _ack_starts(access, wanted)
    with (
        contextlib.closing(StateTopic(access, from_end=True)) as topic,
        contextlib.closing(access.reader(starts)) as answers,
    ):
        _write(access, topic, wanted)
        marked = time.monotonic()
        while cancellation.open and not stop and not deadline.passed(time.monotonic()):
            _look(cancellation, topic, answers)
            if answers.at_end:
                cancellation.answers_read(marked)
                marked = time.monotonic()
                answers.mark_ends()
        cancellation.close()


def _look(cancellation: Cancellation, topic: StateTopic, answers: Reader) -> None:
    for change in topic.poll(0.1):
        cancellation.change(change, time.monotonic())
    for record in answers.poll(0.1):
        _take(cancellation, record)


def _take(cancellation: Cancellation, record: Record) -> None:
    try:
        response = decode_answer(record.value)
    except MalformedError:
        return  # not an answer
    origin = response.origin
    place = Origin(origin.topic, origin.partition, origin.offset)
    cancellation.answer(place, outcome_of(response), response.attempt)


def _ack_starts(access: Access, origins: Collection[Origin]) -> Mapping[Partition, int]:
    """Return where to start reading the ack topic: no answer is older than the oldest of the requests."""
    places = access.cluster.partitions(access.settings.ack_topic)
    firsts: dict[Partition, int] = {}
    for origin in origins:
        firsts[origin.place] = min(origin.offset, firsts.get(origin.place, origin.offset))
    times = list(_times(access, firsts))
    oldest = min(times) - CLOCKS if len(times) == len(firsts) else 0
    return access.cluster.offsets_at(places, max(0, oldest))


def _times(access: Access, firsts: Mapping[Partition, int]) -> list[int]:
    """Return when the first request of each partition was written, in milliseconds, without those that are gone."""
    left, times = set(firsts), []
    for record in access.read(firsts):
        if record.partition in left:
            left.discard(record.partition)
            times.append(record.timestamp_ms)
        if not left:
            break
    return times


def _write(access: Access, topic: StateTopic, origins: Collection[Origin]) -> None:
    now = time.time_ns()
    records = [
        Outgoing(
            topic.topic,
            cancel_key(origin),
            encode_cancel(CancelRequest(origin, now)),
            partition=partition_of(origin, topic.partitions),
        )
        for origin in origins
    ]
    failures = [each.failure for each in deliver(access.sender(), records) if each.failure is not None]
    if failures:
        with needing("WRITE", topic.topic):
            raise BrokerError(f"writing to {topic.topic} (KAFKA_STATE_TOPIC) failed: {failures[0]}")


# ---------------------------------------------------------------- the report


def _report(targets: Targets, cancellation: Cancellation) -> bool:
    """Print a line for each request, and a summary. Return whether every request was reached."""
    for origin in sorted(cancellation.reach):
        key = targets.keys[origin]
        click.echo("  ".join([str(origin), *([key] if key is not None else []), cancellation.reach[origin].value]))
    for name in targets.missing:
        echo(f"{name}: no request has this key or job")
    counts = Counter(cancellation.reach.values())
    parts = ", ".join(f"{counts[reach]} {reach.value}" for reach in Reach if counts[reach])
    if counts:
        echo(f"{count(counts.total(), 'request')}: {parts}")
    if counts[Reach.OPEN]:
        echo("requests not reached yet are cancelled as soon as a worker fetches them")
    return not (targets.missing or counts[Reach.OPEN])
