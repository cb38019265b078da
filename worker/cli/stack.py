"""``worker stack``: prints the Python stack of a running task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, NamedTuple

import click

from worker.cli.access import Access
from worker.cli.console import INTERRUPTED, echo, stoppable
from worker.cli.replicas import processes, tasks_of
from worker.cli.stack_request import request_stacks
from worker.core.deadline import Deadline
from worker.core.model import Partition
from worker.stacks import stacks
from worker.state.records import parse_origin

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

    from worker.core.task_state import Origin

TIMEOUT = 15.0  # seconds for a replica to reply

EPILOG = """\b
Examples:
  worker stack requests/3/1042
  worker stack requests/3/1042 --native

\b
Prints the stacks of all threads of the process that runs the task. The thread "executor" runs the
handler; with WORKER_ISOLATION=process it is "MainThread" of the child process. Reading the stacks
pauses the process for some milliseconds. It also works while C code holds the interpreter lock.

\b
On the machine of the replica this works for every task, through /tasks. Elsewhere it works for
long tasks (worker tasks): the command writes a request to KAFKA_STATE_TOPIC, the replica replies
there, and the command removes both records. So anyone who can read and write that topic can see
stacks.

\b
Reading a stack needs the kernel's permission: the same user, and ptrace must be allowed.

\b
Exit codes: 0 printed · 1 no replica runs the task, or its process cannot be read · 2 wrong usage
or settings · 4 Kafka or the topic is not reachable · 130 interrupted.
"""


@click.command(epilog=EPILOG, short_help="Print the Python stack of a running task.")
@click.argument("origin")
@click.option("--native", is_flag=True, help="Show the frames of C extensions too.")
def stack(*, origin: str, native: bool) -> int:
    """Print the Python stack of the task that runs the request at ORIGIN, topic/partition/offset."""
    try:
        place = parse_origin(origin)
    except ValueError as error:
        raise click.UsageError(f"{origin!r} {error}") from None
    access = Access()
    port = access.settings.http_port
    found = find(processes(f"http://127.0.0.1:{port}", named=False), place) if port else None
    if found is None:
        return _from_afar(access, place, native=native)
    if not found.certain:
        echo(f"{place} is not reported as running; this is the process that has its partition")
    click.echo(stacks(found.pid, native=native), nl=False)
    return 0


def _from_afar(access: Access, origin: Origin, *, native: bool) -> int:
    """Ask the replicas through the state topic. Without one, tell the user to run the command on the right machine."""
    if not access.settings.state_topic:
        echo(f"{origin} does not run on this machine: run the command where it runs, or set KAFKA_STATE_TOPIC")
        return 1
    with stoppable() as stop:
        reply = request_stacks(access, origin, Deadline.after(TIMEOUT, time.monotonic()), stop, native=native)
    if stop:
        return INTERRUPTED
    if reply is None:
        echo(f"no replica has reported within {TIMEOUT:g} s that it runs {origin}: `worker tasks` lists the long tasks")
        return 1
    echo(f"{reply.worker} runs it")
    click.echo(reply.text.rstrip("\n"), err=not reply.good)
    return int(not reply.good)


class Found(NamedTuple):
    """A process. It is ``certain`` if the process reports that it runs the task."""

    pid: int
    certain: bool


def find(rows: Iterable[dict[str, Any]], origin: Origin) -> Found | None:
    """Return the process that runs the request, or else the one with its partition that reports no task.

    A handler that has held the interpreter lock since its start keeps its process from reporting the task. Pure.
    """
    owner: Found | None = None
    for row in rows:
        for task in tasks_of(row):
            if (task["topic"], task["partition"], task["offset"]) == origin:
                return Found(task.get("pid") or row["pid"], certain=True)
        if row.get("task") is None and str(Partition(*origin[:2])) in row.get("partitions", {}):
            owner = Found(row["pid"], certain=False)
    return owner
