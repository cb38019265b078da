"""The assignment of partitions: static members, names of replicas, replicas that join and leave."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import os
import signal
import time
from typing import TYPE_CHECKING, Any

import pytest

from chaos import groups
from tests.kafka.support.replica import kill
from tests.kafka.support.topics import members, task
from tests.kafka.support.waiting import until
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

SESSION = 45.0  # seconds, the classic protocol's default
HEARTBEAT = 0.5  # seconds, of the brokers that scripts/kafka starts
SLACK = 3.0  # seconds that a busy machine may add


def nap(seconds: float) -> str:
    return json.dumps({"do": "nap", "seconds": seconds})


def wait_shared(one: Site, count: int) -> dict[str, set[int]]:
    """Wait until the group has ``count`` members, each with partitions. Return them."""
    shared: dict[str, set[int]] = until(
        lambda: (now := members(one.bootstrap, one.group)) and len(now) == count and all(now.values()) and now,
        lambda: f"{members(one.bootstrap, one.group)}\n{one.tails()}",
    )
    return shared


def events_of(replica: Replica, process: str, *names: str) -> list[dict[str, Any]]:
    """Return the log lines of one process with these events."""
    return [entry for entry in replica.events(*names) if entry["process"] == process]


# ---------------------------------------------------------------- static members


def a_killed_static_member_gets_its_partitions_back_at_once(site: Callable[..., Site]) -> None:
    """Under classic, long before the session is over. No other member's partitions move."""
    one = site(
        partitions=4,
        WORKER_PROCESSES="2",
        WORKER_REPLICA="here",
        KAFKA_GROUP_PROTOCOL="classic",
        KAFKA_STATIC_MEMBERSHIP="on",
    )
    replica = one.start().wait_ready()
    before = wait_shared(one, 2)
    one.submit(task(n, nap(60) if n < 4 else "go", partition=n % 4) for n in range(8))
    running = one.wait_running(2)
    moved = len(replica.events("partitions.assigned", "partitions.revoked", "partitions.lost"))
    victim = next(iter(running.values()))
    killed_at = time.monotonic()
    kill([victim])
    # A task of one of its two partitions: the one that is fetched first. The other one waits for the nap.
    until(lambda: {entry.pid for entry in one.journal.entries("start")} - set(running.values()), one.tails)
    waited = time.monotonic() - killed_at
    print(f"started again {waited:.1f} s after the kill; the session is {SESSION:.0f} s")  # noqa: T201 - measured
    assert waited < SESSION / 2
    later = replica.events("partitions.assigned", "partitions.revoked", "partitions.lost")[moved:]
    assert {entry["event"] for entry in later} == {"partitions.assigned"}, later
    assert len({entry["process"] for entry in later}) == 1, later
    after = members(one.bootstrap, one.group)
    assert sorted(map(sorted, after.values())) == sorted(map(sorted, before.values()))


def static_under_consumer(site: Callable[..., Site], session: float) -> tuple[Site, Replica]:
    """Start a replica whose process is a static member with partitions and no tasks. Return it with its site."""
    one = site(partitions=2, WORKER_REPLICA="here", KAFKA_GROUP_PROTOCOL="consumer", KAFKA_STATIC_MEMBERSHIP="on")
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": f"{session * 1000:.0f}"})
    replica = one.start().wait_ready()
    one.submit([task(0, "go", partition=0), task(1, "go", partition=1)])
    one.wait_answered()
    one.wait_committed()
    return one, replica


def a_killed_static_member_is_removed_from_its_group(site: Callable[..., Site]) -> None:
    """Under consumer, long before the session is over. Until the removal, the broker keeps the member's name."""
    one, replica = static_under_consumer(site, SESSION)
    killed_at = time.monotonic()
    kill(replica.pids())
    one.submit([task(2, "go", partition=0), task(3, "go", partition=1)])
    one.finish()
    assert time.monotonic() - killed_at < SESSION / 2
    one.started_once()
    assert len(replica.events("process.started")) == 2, replica.tail(60)


def a_killed_static_replica_waits_for_its_session(site: Callable[..., Site]) -> None:
    """Under consumer the member stays in the group. The next process retries until the name is free."""
    one, replica = static_under_consumer(site, 20.0)
    kill([replica.process.pid])
    replica.process.wait()
    following = one.start()
    one.submit([task(2, "go", partition=0), task(3, "go", partition=1)])
    one.finish()
    one.started_once()
    assert following.events("group_instance_id.in_use")
    assert len(following.events("process.started")) == 1, following.tail(60)


def auto_membership_is_static_under_classic(site: Callable[..., Site]) -> None:
    """Under classic, a replica that restarts with its name has the same members. Otherwise it has new ones."""
    cases = {
        "named": {"WORKER_REPLICA": "here", "KAFKA_GROUP_PROTOCOL": "classic"},
        "nameless": {"KAFKA_GROUP_PROTOCOL": "classic"},
        "consumer": {"WORKER_REPLICA": "here", "KAFKA_GROUP_PROTOCOL": "consumer"},
        "off": {"WORKER_REPLICA": "here", "KAFKA_GROUP_PROTOCOL": "classic", "KAFKA_STATIC_MEMBERSHIP": "off"},
    }
    sites = {name: site(partitions=1, **variables) for name, variables in cases.items()}
    for one in sites.values():
        one.start()
    for one in sites.values():
        one.replicas[0].wait_ready()
        wait_shared(one, 1)
        one.stop()
    # A process that has left is no longer a member, unless it is static and expected back.
    assert {name: len(members(one.bootstrap, one.group)) for name, one in sites.items()} == {
        "named": 1,
        "nameless": 0,
        "consumer": 0,
        "off": 0,
    }


# ---------------------------------------------------------------- names


def two_replicas_of_one_name_cannot_run_on_one_host(site: Callable[..., Site]) -> None:
    """The second replica ends with one line. When the first has ended, even after a kill, the name is free."""
    one = site(WORKER_REPLICA="twin")
    first = one.start().wait_ready()
    second = one.start()
    assert second.wait_exit() == 2
    (line,) = second.stderr.splitlines()
    assert "WORKER_REPLICA" in line
    assert "twin" in line
    kill([first.process.pid])
    first.process.wait()
    one.start().wait_ready()


def replicas_without_a_name_are_numbered(site: Callable[..., Site]) -> None:
    one = site(partitions=2)
    host = os.uname().nodename
    for name in (f"{host}-0", f"{host}.1-0"):
        replica = one.start().wait_ready()
        until(lambda r=replica, n=name: events_of(r, n, "partitions.assigned"), one.tails)  # type: ignore[misc]
    one.submit([task(1, nap(2), partition=0), task(2, nap(2), partition=1)])
    wait_shared(one, 2)
    one.finish()
    assert {one.answer_to(sent).response.worker for sent in one.sent} <= {f"{host}-0", f"{host}.1-0"}


# ---------------------------------------------------------------- replicas that come and go


def moment(entry: dict[str, Any]) -> float:
    """Return the time of a log line."""
    return dt.datetime.fromisoformat(entry["timestamp"]).timestamp()


def a_partition_follows_its_task(site: Callable[..., Site]) -> None:
    """The partition reaches its new owner within two heartbeats of the answer to its task."""
    one = site(partitions=2, KAFKA_GROUP_PROTOCOL="consumer", WORKER_HANDLER="batches:gated")
    signal = one.folder / "signal"
    first = one.start().wait_ready()
    before = set(wait_shared(one, 1))
    guest = one.start()
    ((moved,),) = [parts for member, parts in wait_shared(one, 2).items() if member not in before]
    assert guest.stop() == 0, guest.tail()
    wait_shared(one, 1)  # the same partition will move the next time
    one.submit(task(n, str(signal) if n == 0 else "", partition=moved) for n in range(5))
    one.wait_running(1)
    second = one.start()
    until(lambda: first.events("partitions.holding"), one.tails)
    signal.touch()
    one.finish()
    one.started_once()
    (settled,) = [moment(e) for e in first.events("task.finished") if (e["partition"], e["offset"]) == (moved, 0)]
    there = moment(second.events("partitions.assigned")[-1])
    print(f"with its new owner {there - settled:.2f} s after the answer; heartbeats are {HEARTBEAT} s")  # noqa: T201
    assert moment(first.events("partitions.holding")[-1]) < settled
    assert there - settled < 2 * HEARTBEAT + SLACK


def scaling_from_one_to_four_and_back_starts_no_task_twice(site: Callable[..., Site]) -> None:
    """The first replica always has a task, whichever partitions move."""
    seconds, each = (20, 1) if LONG else (2, 3)
    one = site(partitions=8, KAFKA_GROUP_PROTOCOL="consumer")
    first = one.start().wait_ready()
    one.submit(task(n, nap(seconds), partition=n % 8) for n in range(8 * each))
    one.wait_running(1)
    for _ in range(3):
        one.start()
    one.wait_running(4)
    for replica in one.replicas[1:]:
        replica.send(signal.SIGTERM)
    for replica in one.replicas[1:]:
        assert replica.wait_exit() == 0, replica.tail()
    one.finish(seconds=seconds * 30 + 60)
    one.started_once()
    assert len({entry.pid for entry in one.journal.entries()}) == 4
    ours = [
        entry for entry in one.journal.entries() if entry.pid in {e["pid"] for e in first.events("process.started")}
    ]
    pauses = [start.time - end.time for end, start in itertools.pairwise(ours) if end.event == "end"]
    print(f"the first replica was without a task for {max(pauses):.2f} s at most")  # noqa: T201 - measured
    assert max(pauses) < SLACK


SCENARIOS = [
    a_killed_static_member_gets_its_partitions_back_at_once,
    a_killed_static_member_is_removed_from_its_group,
    a_killed_static_replica_waits_for_its_session,
    auto_membership_is_static_under_classic,
    two_replicas_of_one_name_cannot_run_on_one_host,
    replicas_without_a_name_are_numbered,
    a_partition_follows_its_task,
    scaling_from_one_to_four_and_back_starts_no_task_twice,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_membership(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
