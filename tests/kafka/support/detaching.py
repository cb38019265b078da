"""Common functions for the tests of detached tasks: one-process replicas that detach tasks after 3 s, and tasks."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING

from tests.kafka.support.topics import members, task
from tests.kafka.support.waiting import until
from tests.kafka_broker import create_topics

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Sent

PARTITIONS = 8
SHORT = 200
SESSION = "6000"  # milliseconds


def make(site: Callable[..., Site], protocol: str, **variables: str) -> Site:
    """Return a site for one-process replicas that detach tasks after 3 s."""
    state = f"state-{uuid.uuid4().hex[:8]}"
    one = site(
        partitions=PARTITIONS,
        KAFKA_GROUP_PROTOCOL=protocol,
        KAFKA_STATE_TOPIC=state,
        **{"WORKER_LONG_AFTER": "3s", "WORKER_ORDERING": "unordered"} | variables,
    )
    create_topics(one.bootstrap, [state], 1, {"cleanup.policy": "compact"})
    return one


def shared(one: Site, expected: list[int]) -> None:
    """Wait until the partitions are shared as expected, and the group has been quiet for a while."""
    until(
        lambda: sorted(map(len, members(one.bootstrap, one.group).values())) == expected,
        lambda: f"{members(one.bootstrap, one.group)}\n{one.tails()}",
    )
    time.sleep(5)


def two_replicas(one: Site) -> list[Replica]:
    """Start two replicas, each with half of the partitions."""
    replicas = [one.start().wait_ready(), one.start().wait_ready()]
    shared(one, [PARTITIONS // 2] * 2)
    return replicas


def submit_long(one: Site, seconds: float = 40) -> None:
    """Submit one long task, and wait until it runs."""
    one.submit([task(0, f'{{"do": "nap", "seconds": {seconds}}}', partition=0)])
    one.wait_running(1)


def submit_short(one: Site) -> list[Sent]:
    """Submit short tasks to all partitions."""
    return one.submit(task(1 + n, '{"do": "nap", "seconds": 0.02}', partition=n % PARTITIONS) for n in range(SHORT))


def holder_of(one: Site, replicas: list[Replica]) -> Replica:
    """Return the replica that has detached a task."""
    found = until(
        lambda: [replica for replica in replicas if replica.events("task.detached")],
        one.tails,
    )
    assert found
    holder: Replica = found[0]
    return holder


def behind_with_an_idle_replica(one: Site) -> float:
    """Return the seconds until all short tasks behind a long one are answered, with two replicas."""
    for _ in range(2):
        one.start().wait_ready()
    shared(one, [PARTITIONS // 2] * 2)
    submit_long(one)
    began = time.monotonic()
    one.wait_answered(submit_short(one))
    return time.monotonic() - began


def behind_with_a_new_replica(one: Site) -> float:
    """Return these seconds for a second replica that starts during the long task, counted from its readiness."""
    one.start().wait_ready()
    shared(one, [PARTITIONS])
    submit_long(one, 60)
    short = submit_short(one)
    one.start().wait_ready()
    began = time.monotonic()
    one.wait_answered(short)
    return time.monotonic() - began
