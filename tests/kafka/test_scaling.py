"""Replicas join and leave while tasks run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import members, task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(180)]

PARTITIONS = 8


def share(one: Site) -> list[int]:
    """Return how many partitions each member of the group has, ascending."""
    return sorted(map(len, members(one.bootstrap, one.group).values()))


def wait_share(one: Site, expected: list[int]) -> None:
    """Wait until the partitions are shared like this."""
    until(lambda: share(one) == expected, lambda: f"{members(one.bootstrap, one.group)}\n{one.tails()}")


def scaling_out_and_in_starts_no_task_twice(site: Callable[..., Site]) -> None:
    """Under the consumer protocol, a partition that moves waits for its running task, however long that takes."""
    one = site(partitions=PARTITIONS, WORKER_PROCESSES="2", KAFKA_GROUP_PROTOCOL="consumer")
    first = one.start().wait_ready()
    naps = ['{"do": "nap", "seconds": 3}', *['{"do": "nap", "seconds": 0.5}'] * 3]
    one.submit(task(n, payload, partition=p) for n, payload in enumerate(naps) for p in range(PARTITIONS))
    one.wait_running(2)
    second = one.start()
    wait_share(one, [2, 2, 2, 2])
    pids = set(second.pids())
    until(lambda: pids & set(one.journal.running().values()), lambda: f"the new one has no task\n{one.tails()}")
    assert first.stop() == 0, first.tail()  # in the middle of the work
    one.finish()
    one.started_once()
    assert pids < {entry.pid for entry in one.journal.entries()}


def partition_that_moves(one: Site) -> int:
    """Return which of a member's two partitions moves when another member joins. It is the same one every time."""
    one.start().wait_ready()
    wait_share(one, [2])
    before = set(members(one.bootstrap, one.group))
    guest = one.start()
    wait_share(one, [1, 1])
    ((moved,),) = [parts for member, parts in members(one.bootstrap, one.group).items() if member not in before]
    assert guest.stop() == 0, guest.tail()
    wait_share(one, [2])
    return moved


def a_task_moves_to_another_process_after_the_hold(site: Callable[..., Site]) -> None:
    """After the hold, the task starts again in another process. The result of the first start is no second answer."""
    sites = [site(partitions=2, KAFKA_GROUP_PROTOCOL="consumer", WORKER_REVOKE_HOLD="2s") for _ in range(2)]
    for one, action in zip(sites, ["heed", "nap"], strict=True):  # only ``heed`` ends when it is cancelled
        moved = partition_that_moves(one)
        one.submit([task(1, json.dumps({"do": action, "seconds": 30}), partition=moved)])
        one.wait_running(1)
        one.start_in_a_hurry()
    for one in sites:
        one.wait_answered()
        starts = one.journal.entries("start")
        assert len(starts) == 2, one.tails()
        assert starts[0].pid != starts[1].pid
        assert starts[1].time - starts[0].time >= 2
        one.finish()  # the first replica drains too: the result of its task is dropped
        assert len(one.journal.entries("start")) == 2
        assert one.answer_to(one.sent[0]).response.result == b"hurried"


def two_replicas_that_start_together_share_the_work(site: Callable[..., Site]) -> None:
    one = site(partitions=PARTITIONS, WORKER_PROCESSES="2")
    one.submit(task(n, '{"do": "nap", "seconds": 0.2}', partition=n % PARTITIONS) for n in range(32))
    for replica in [one.start(), one.start()]:
        replica.wait_ready()
    one.finish()
    one.started_once()


SCENARIOS = [
    scaling_out_and_in_starts_no_task_twice,
    a_task_moves_to_another_process_after_the_hold,
    two_replicas_that_start_together_share_the_work,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_scaling(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
