"""The worker's log as the suite reads it. This module has every event and field name that the suite depends on.

The suite uses them to find processes and to wait for readiness. They alone never excuse a broken invariant.
"""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

from chaos.clocks import unshifted

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from chaos.evidence import RecordId

SUPERVISOR_STARTED = "supervisor.started"
PROCESS_STARTED = "process.started"  # field: pid
ASSIGNED = "partitions.assigned"  # fields: process, partitions
HOLDING = "partitions.holding"  # fields: process, partitions
REBALANCES = (HOLDING, ASSIGNED, "partitions.revoked", "partitions.lost")
TASKS_LOST = "tasks.lost"  # fields: partition ("topic[3]"), offsets (["4-5", "9-9"])
DETACHED, TAKEN_OVER, GAVE_WAY = "task.detached", "task.taken_over", "process.gave_way"
TRANSACTION_HUNG = "transaction.hung"  # field: process
PROCESS, PID, PARTITION, PARTITIONS, OFFSETS = "process", "pid", "partition", "partitions", "offsets"


def lines(log: Path, *texts: str) -> Iterator[str]:
    """Yield the lines of a log that contain one of these texts."""
    with log.open(errors="replace") as file:
        for line in file:
            if any(text in line for text in texts):
                yield line.rstrip()


def events(log: Path, *names: str) -> Iterator[dict[str, Any]]:
    """Yield the events of these names. Skip a line that was cut off because its writer was killed."""
    for line in lines(log, *(f'"event": "{name}"' for name in names)):
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def supervising(log: Path) -> bool:
    """Return whether the supervisor has begun to supervise."""
    return any(True for _ in events(log, SUPERVISOR_STARTED))


def worker_pids(log: Path) -> set[int]:
    """Return all worker processes that were started."""
    return {event[PID] for event in events(log, PROCESS_STARTED)}


def assigned_processes(log: Path) -> set[str]:
    """Return the worker processes that were assigned partitions."""
    return {event[PROCESS] for event in events(log, ASSIGNED)}


def about(log: Path, topic: str, record: RecordId) -> tuple[list[str], list[str]]:
    """Return the lines about a request, and the lines about its partition."""
    partition, offset = record
    return list(lines(log, f'"partition": {partition}, "offset": {offset},')), list(lines(log, f"{topic}[{partition}]"))


def lost(logs: Iterable[Path]) -> frozenset[RecordId]:
    """Return the requests that the worker reported as lost."""
    records: set[RecordId] = set()
    for event in (event for log in logs for event in events(log, TASKS_LOST)):
        partition = int(event[PARTITION].rpartition("[")[2].rstrip("]"))
        for offsets in event[OFFSETS]:
            first, last = offsets.split("-")
            records |= {(partition, offset) for offset in range(int(first), int(last) + 1)}
    return frozenset(records)


def features_used(logs: Iterable[Path]) -> Counter[str]:
    """Return how often tasks were detached and taken over, and how often processes gave way. Not for the verdict."""
    return Counter(event["event"] for log in logs for event in events(log, DETACHED, TAKEN_OVER, GAVE_WAY))


def hung_clients(logs: Iterable[Path]) -> int:
    """Return the most clients that one process has abandoned, because a call did not return."""
    found = [(log, event[PROCESS]) for log in logs for event in events(log, TRANSACTION_HUNG)]
    return max(Counter(found).values(), default=0)


def holds(logs: Iterable[Path], now: float) -> list[tuple[str, float]]:
    """Return for how many seconds each process held revoked partitions.

    A hold ends when one of its partitions is assigned, or when the process logs another rebalance. ``now`` is the time
    in seconds since the epoch: the clocks of the logs may have jumped.
    """
    found = []
    began: dict[str, tuple[float, set[str]]] = {}
    every = (event for log in logs for event in events(log, *REBALANCES))
    for time, event in sorted(((_time(event, now), event) for event in every), key=lambda entry: entry[0]):
        partitions = set(event[PARTITIONS])
        for process, (begin, held) in list(began.items()):
            if process == event[PROCESS] or (event["event"] == ASSIGNED and held & partitions):
                found.append((process, time - begin))
                del began[process]
        if event["event"] == HOLDING:
            began[event[PROCESS]] = time, partitions
    return found


def _time(event: dict[str, Any], now: float) -> float:
    return unshifted(datetime.fromisoformat(event["timestamp"]).timestamp(), now)
