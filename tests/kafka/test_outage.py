"""The broker goes away and comes back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until
from tests.kafka_broker import running_broker
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.support.site import Site
    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

AWAY = 30.0 if LONG else 12.0  # seconds
TASKS = 60


@pytest.fixture
def separate_broker() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker


@pytest.mark.parametrize("ending", ["stop", "kill"] if LONG else ["stop"])
def test_a_replica_answers_all_requests_after_an_outage(
    site: Callable[..., Site], separate_broker: Broker, ending: str
) -> None:
    """Its processes stay the same unless a client is stranded. Only requests of lost partitions have two answers."""
    one = site(at=separate_broker, partitions=4, WORKER_PROCESSES="2")
    replica = one.start().wait_ready()
    # Half of the tasks are quick, and half take longer than a round trip to the broker.
    one.submit(task(n, '{"do": "nap", "seconds": 0.6}' if n % 2 else "go", partition=n // 2 % 4) for n in range(TASKS))
    until(lambda: sum(one.counts().values()) >= TASKS // 5, one.tails)
    pids = replica.pids()
    separate_broker.script(ending)
    until_at = time.monotonic() + AWAY
    assert sum(one.journal.starts().values()) < TASKS, "the outage came too late to show anything"
    until(lambda: time.monotonic() >= until_at, "")
    assert replica.page("/livez").status == 200
    separate_broker.script("up")
    one.wait_answered()
    # A client may lose all brokers in an outage of the whole cluster. Then its process is replaced (decision 0075).
    assert replica.pids() == pids or replica.events("client.stranded"), replica.tail()
    lost = {partition for event in replica.events("partitions.lost") for partition in event["partitions"]}
    twice = {(part, offset) for (part, offset), count in one.journal.starts().items() if count > 1}
    assert {f"{one.requests}[{part}]" for part, _ in twice} <= lost, replica.tail()
    one.finish(twice=[sent for sent in one.sent if f"{one.requests}[{sent.partition}]" in lost])
