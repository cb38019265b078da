"""``worker wait``: waits for the answers to requests that were submitted earlier, by any client."""

from __future__ import annotations

import base64
import concurrent.futures
import json
import math
import os
import time
from collections import Counter
from typing import IO, TYPE_CHECKING, Any

import click

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, echo, meter, stoppable
from worker.cli.submit import Duration
from worker.client.client import Client
from worker.client.errors import TaskFailed
from worker.client.ids import InvalidIdError, Origin, TaskId
from worker.core.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from worker.cli.console import Stop
    from worker.client.futures import TaskFuture

SHOWN = 10  # unanswered requests that are listed

EPILOG = """\b
Examples:
  worker wait --job tuesday --output answers.jsonl
  worker submit --file table.jsonl --ids ids.txt && worker wait --file ids.txt
  worker wait requests/0/1042 --timeout 15m

\b
An id comes from worker submit --ids or from Client.submit. The topic/partition/offset of a request
works too. Earlier answers count.

\b
Exit codes: 0 all answered · 1 not all · 2 wrong input or settings · 4 Kafka or a topic is not
reachable · 130 interrupted.
"""


@click.command(epilog=EPILOG)
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option("--file", type=click.File(errors="replace"), help="Take the ids from a file, one per line; - is stdin.")
@click.option("--job", metavar="NAME", help="Wait for the requests that were submitted with --job NAME.")
@click.option("--timeout", type=Duration(), default=math.inf, help="Give up after this time (90s, 15m).")
@click.option("--output", type=click.File("w", lazy=False), help="Write each answer as a line of JSON; - is stdout.")
@click.option("--expect-ok", is_flag=True, help="Exit with 1 unless every outcome is OK.")
def wait(
    *,
    ids: tuple[str, ...],
    file: IO[str] | None,
    job: str | None,
    timeout: float,
    output: IO[str] | None,
    expect_ok: bool,
) -> int:
    """Wait until all of the requests are answered, and print a summary of the outcomes."""
    if sum(map(bool, (ids, file, job))) != 1:
        raise click.UsageError("give the ids either as arguments, or with --file, or with --job")
    names = _of_job(Access(), job) if job else [line.strip() for line in file if line.strip()] if file else ids
    try:
        wanted = list(dict.fromkeys(TaskId.parse(name) for name in names))
    except InvalidIdError as error:
        raise click.UsageError(str(error)) from None
    if not wanted:
        why = f"no request has a key of job {job!r}" if job else "the file has no ids"
        raise click.UsageError(f"there is nothing to wait for: {why}")
    with stoppable() as stop, Client() as client:
        futures = dict(zip(client.resume(map(str, wanted)), wanted, strict=True))
        outcomes = _collect(futures, output, Deadline.after(timeout, time.monotonic()), stop)
    _report(futures.values(), outcomes, len(wanted))
    good = not futures and not (expect_ok and set(outcomes) - {"OK"})
    return INTERRUPTED if stop else int(not good)


def _of_job(access: Access, job: str) -> Iterator[str]:
    """Yield the ids of the requests whose keys belong to the job, as created by ``worker submit --job``."""
    prefix = os.fsencode(f"{job}/")
    for topic in access.settings.request_topics:
        spans = access.cluster.spans(access.cluster.partitions(topic))
        for record in access.read({place: span.start for place, span in spans.items()}):
            if (record.key or b"").startswith(prefix):
                yield str(TaskId(Origin(*record.partition, record.offset), max(0, record.timestamp_ms)))


def _collect(futures: dict[TaskFuture, TaskId], output: IO[str] | None, deadline: Deadline, stop: Stop) -> Counter[str]:
    """Remove answered requests from ``futures`` until none is left, or until the deadline or a stop."""
    outcomes: Counter[str] = Counter()
    total = len(futures)
    with meter("answered", total) as shown:
        while futures and not stop and not deadline.passed(time.monotonic()):
            # Wait for the first one only: with very many futures, a wait for any of them would be set up again for each
            # answer.
            concurrent.futures.wait([next(iter(futures))], timeout=0.2)
            for future in [future for future in futures if future.done()]:
                answer = _as_json(futures.pop(future), future)
                outcomes[answer["outcome"]] += 1
                if output is not None:
                    output.write(json.dumps(answer, ensure_ascii=False) + "\n")
            shown.show(total - len(futures))
    return outcomes


def _as_json(task_id: TaskId, future: TaskFuture) -> dict[str, Any]:
    head: dict[str, Any] = {"id": str(task_id), "origin": task_id.origin._asdict()}
    try:
        result = future.result()
    except TaskFailed as failed:
        return head | {"outcome": failed.outcome, "error": {"type": failed.error_type, "message": failed.message}}
    try:
        return head | {"outcome": "OK", "result": result.decode()}
    except UnicodeDecodeError:
        return head | {"outcome": "OK", "result_base64": base64.b64encode(result).decode()}


def _report(unanswered: Iterable[TaskId], outcomes: Counter[str], total: int) -> None:
    counts = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common()) or "none"
    echo(f"{outcomes.total()} of {total} requests answered: {counts}")
    names = [str(task_id.origin) for task_id in unanswered]
    if names:
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        echo(f"{len(names)} unanswered: {', '.join(names[:SHOWN])}{more}")
