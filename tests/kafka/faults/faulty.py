"""Sites with a fault in a replica: functions that start the replica and observe the effects of the fault."""

from __future__ import annotations

import os
import re
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from chaos import groups
from tests.kafka.support.replica import ROOT
from tests.kafka.support.topics import members
from tests.kafka.support.waiting import WAIT_LIMIT, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site

FAULTS = Path(__file__).parent
SESSION = "6000"  # ms without a heartbeat until the group removes a member; the broker's minimum


def small_site(site: Callable[..., Site], guarantee: str, **variables: str) -> Site:
    """Return a site with two partitions, one process per replica, and a short session under both protocols."""
    variables = {"KAFKA_GROUP_PROTOCOL": "consumer", "WORKER_GUARANTEE": guarantee, **variables}
    if variables["KAFKA_GROUP_PROTOCOL"] == "classic":
        variables["KAFKA_CONFIG_SESSION_TIMEOUT_MS"] = SESSION
    one = site(partitions=2, **variables)
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": SESSION})
    return one


def start(one: Site, point: str, number: str = "SIGKILL", **variables: str) -> Replica:
    """Start a replica. The first process that reaches this point with request 0 of partition 0 gets the signal."""
    return one.start(
        PYTHONPATH=f"{FAULTS}:{ROOT}",
        FAULT_POINT=point,
        FAULT_PLACE="0:0",
        FAULT_SIGNAL=number,
        FAULT_MARKER=str(_marker(one)),
        **variables,
    )


def _marker(one: Site) -> Path:
    return one.folder / "fault"


def struck(one: Site) -> int:
    """Wait until a process has got the signal, and return its pid."""

    def found() -> int:
        text = _marker(one).read_text() if _marker(one).exists() else ""
        return int(text or 0)

    pid: int = until(found, lambda: f"the fault was not met\n{one.tails()}")
    return pid


def wake(one: Site) -> None:
    """Continue the stopped process."""
    os.kill(struck(one), signal.SIGCONT)


def wait_members(one: Site, count: int) -> None:
    """Wait until the group has ``count`` members, each with a partition."""
    until(
        lambda: [bool(held) for held in members(one.bootstrap, one.group).values()] == [True] * count,
        lambda: f"{members(one.bootstrap, one.group)}\n{one.tails()}",
    )


def lost(one: Site) -> float:
    """Return the sum of ``worker_lost_total`` over all running replicas."""
    pages = [page.text for replica in one.replicas if (page := replica.get("/metrics"))]
    found = [re.findall(r"^worker_lost_total\{.*\} (.*)$", page, re.MULTILINE) for page in pages]
    return sum(float(value) for values in found for value in values)


def wait_lost(one: Site, count: int, seconds: float = WAIT_LIMIT) -> None:
    """Wait until ``count`` tasks are counted as lost."""
    until(lambda: lost(one) == count, lambda: f"{lost(one)} instead of {count} are lost\n{one.tails()}", seconds)


def named_as_lost(one: Site) -> set[tuple[int, int]]:
    """Return partition and offset of the tasks that the replicas' logs name as lost."""
    return set(times_named(one))


def times_named(one: Site) -> list[tuple[int, int]]:
    """Return each of them as often as it is named. If an owner dies before a commit, the next owner names it again."""
    named = []
    for event in (event for replica in one.replicas for event in replica.events("tasks.lost")):
        partition = int(event["partition"].rpartition("[")[2].rstrip("]"))
        for first, last in (text.split("-") for text in event["offsets"]):
            named += [(partition, offset) for offset in range(int(first), int(last) + 1)]
    return named
