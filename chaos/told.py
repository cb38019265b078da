"""What replicas say of themselves in their logs."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.fleet import Fleet, Replica
    from chaos.ledger import Place

_REBALANCES = ("partitions.holding", "partitions.assigned", "partitions.revoked", "partitions.lost")


def _events(replica: Replica, *names: str) -> Iterator[dict[str, Any]]:
    for line in replica.lines(*(f'"event": "{name}"' for name in names)):
        with contextlib.suppress(ValueError):  # half a line: its writer was killed
            yield json.loads(line)


def lost(fleet: Fleet) -> frozenset[Place]:
    """The requests that were called lost."""
    places: set[Place] = set()
    for replica in fleet.all:
        for event in _events(replica, "tasks.lost"):
            partition = int(event["partition"].rpartition("[")[2].rstrip("]"))
            for piece in event["offsets"]:
                first, last = piece.split("-")
                places |= {(partition, offset) for offset in range(int(first), int(last) + 1)}
    return frozenset(places)


def hung(fleet: Fleet) -> int:
    """How many clients one process has left behind, at most, because a call of theirs did not come back."""
    found = [(one.log, event["process"]) for one in fleet.all for event in _events(one, "transaction.hung")]
    return max(Counter(found).values(), default=0)


def holds(fleet: Fleet) -> list[tuple[str, float]]:
    """For how many seconds processes went on to hold partitions that they were to give back.

    Until one of them is said to be somebody's, or the process says something of its partitions, whichever comes first.
    """
    found = []
    began: dict[str, tuple[float, set[str]]] = {}
    events = (event for replica in fleet.all for event in _events(replica, *_REBALANCES))
    for event in sorted(events, key=lambda event: event["timestamp"]):
        time, partitions = datetime.fromisoformat(event["timestamp"]).timestamp(), set(event["partitions"])
        for process, (begin, held) in list(began.items()):
            if process == event["process"] or (event["event"] == "partitions.assigned" and held & partitions):
                found.append((process, time - begin))
                del began[process]
        if event["event"] == "partitions.holding":
            began[event["process"]] = time, partitions
    return found
