"""What the tests of batches have in common. Their handler is ``handlers/batches.py``."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING, Any

from tests.kafka.support.replica import metric
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.kafka.support.site import Site


def batch_site(site: Callable[..., Site], size: int, **options: Any) -> Site:
    """A place whose handler takes so many requests at a time."""
    return site(
        **{"partitions": 1, "WORKER_HANDLER": "batches:handle", "WORKER_BATCH_SIZE": str(size), **options},
    )


def submit(one: Site, payloads: Iterable[str], partition: int = 0) -> None:
    """These payloads, numbered as they come."""
    first = len(one.sent)
    one.submit(task(first + number, payload, partition=partition) for number, payload in enumerate(payloads))


def do(action: str, **arguments: Any) -> str:
    """A payload for the handler."""
    return json.dumps({"do": action, **arguments})


def gate_of(one: Site, name: str = "gate") -> tuple[Path, str]:
    """A file that is not there yet, and the payload of a request that waits for it."""
    gate = one.folder / name
    return gate, do("wait", gate=str(gate))


def batches(one: Site) -> list[list[tuple[int, int]]]:
    """The offsets and attempts in every batch so far."""
    starts = itertools.groupby(one.journal.entries("start"), lambda entry: (entry.pid, entry.time))
    return [[(entry.offset, entry.attempt) for entry in batch] for _, batch in starts]


def wait_queued(one: Site, count: int) -> None:
    """Wait until so many records wait in the worker."""
    (replica,) = one.replicas
    until(lambda: metric(replica, "queued_records") == count, lambda: f"{metric(replica, 'queued_records')} queued")


def outcomes(one: Site) -> list[str]:
    """The outcomes of the answers, in the order of the requests."""
    return [one.answer_to(sent).outcome for sent in sorted(one.sent, key=lambda sent: sent[:3])]
