"""Common functions for the tests of batches, whose handler is ``handlers/batches.py``."""

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
    """Return a site whose handler takes up to ``size`` requests at a time."""
    return site(
        **{"partitions": 1, "WORKER_HANDLER": "batches:handle", "WORKER_BATCH_SIZE": str(size), **options},
    )


def submit(one: Site, payloads: Iterable[str], partition: int = 0) -> None:
    """Submit these payloads, numbered in their order."""
    first = len(one.sent)
    one.submit(task(first + number, payload, partition=partition) for number, payload in enumerate(payloads))


def do(action: str, **arguments: Any) -> str:
    """Return a payload for the handler."""
    return json.dumps({"do": action, **arguments})


def signal_of(one: Site, name: str = "signal") -> tuple[Path, str]:
    """Return a file that does not exist yet, and the payload of a request that waits for it."""
    signal = one.folder / name
    return signal, do("wait", signal=str(signal))


def batches(one: Site) -> list[list[tuple[int, int]]]:
    """Return the offsets and attempts of every batch so far."""
    starts = itertools.groupby(one.journal.entries("start"), lambda entry: (entry.pid, entry.time))
    return [[(entry.offset, entry.attempt) for entry in batch] for _, batch in starts]


def wait_queued(one: Site, count: int) -> None:
    """Wait until ``count`` records wait in the worker."""
    (replica,) = one.replicas
    until(lambda: metric(replica, "queued_records") == count, lambda: f"{metric(replica, 'queued_records')} queued")


def outcomes(one: Site) -> list[str]:
    """Return the outcomes of the answers, in the order of the requests."""
    return [one.answer_to(sent).outcome for sent in sorted(one.sent, key=lambda sent: sent[:3])]
