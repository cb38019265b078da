"""Sites whose replica meets a fault: how to start one, and what became of it."""

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
SESSION = "6000"  # ms after which a silent member is given up; the least that the broker takes


def small_site(site: Callable[..., Site], guarantee: str, **variables: str) -> Site:
    """Two partitions, a process per replica, a short session. With ``classic`` too, if that is asked for."""
    variables = {"KAFKA_GROUP_PROTOCOL": "consumer", "WORKER_GUARANTEE": guarantee, **variables}
    if variables["KAFKA_GROUP_PROTOCOL"] == "classic":
        variables["KAFKA_CONFIG_SESSION_TIMEOUT_MS"] = SESSION
    one = site(partitions=2, **variables)
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": SESSION})
    return one


def start(one: Site, point: str, number: str = "SIGKILL", **variables: str) -> Replica:
    """A replica of which the process that comes by this point with request 0 of partition 0 gets the signal, once."""
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
    """The pid of the process that got the signal, once one has."""

    def found() -> int:
        text = _marker(one).read_text() if _marker(one).exists() else ""
        return int(text or 0)

    pid: int = until(found, lambda: f"the fault was not met\n{one.tails()}")
    return pid


def wake(one: Site) -> None:
    """Let the stopped process go on."""
    os.kill(struck(one), signal.SIGCONT)


def wait_members(one: Site, count: int) -> None:
    """Wait until the group has that many members, each with a partition."""
    until(
        lambda: [bool(held) for held in members(one.bootstrap, one.group).values()] == [True] * count,
        lambda: f"{members(one.bootstrap, one.group)}\n{one.tails()}",
    )


def lost(one: Site) -> float:
    """``worker_lost_total`` of all replicas that run."""
    pages = [page.text for replica in one.replicas if (page := replica.get("/metrics"))]
    found = [re.findall(r"^worker_lost_total\{.*\} (.*)$", page, re.MULTILINE) for page in pages]
    return sum(float(value) for values in found for value in values)


def wait_lost(one: Site, count: int, seconds: float = WAIT_LIMIT) -> None:
    """Wait until that many tasks are counted as lost."""
    until(lambda: lost(one) == count, lambda: f"{lost(one)} instead of {count} are lost\n{one.tails()}", seconds)


def named_as_lost(one: Site) -> set[tuple[int, int]]:
    """Partition and offset of the tasks that the replicas' logs name as lost."""
    return set(times_named(one))


def times_named(one: Site) -> list[tuple[int, int]]:
    """The same, as often as they are named: by an owner that dies before it can commit that, too."""
    named = []
    for event in (event for replica in one.replicas for event in replica.events("tasks.lost")):
        partition = int(event["partition"].rpartition("[")[2].rstrip("]"))
        for first, last in (text.split("-") for text in event["offsets"]):
            named += [(partition, offset) for offset in range(int(first), int(last) + 1)]
    return named
