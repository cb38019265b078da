"""The choice of the group protocol, on brokers with and without the consumer protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until
from tests.kafka_broker import running_broker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]


def wait_protocol(replica: Replica, protocol: str) -> None:
    """Wait until all processes report this protocol. Their reports may be half a second old."""
    until(lambda: {process["protocol"] for process in replica.tasks()} == {protocol}, replica.tail, 5)


def test_auto_falls_back_to_classic(site: Callable[..., Site]) -> None:
    with running_broker("group.coordinator.rebalance.protocols=classic") as broker:
        one = site(at=broker, partitions=2, WORKER_PROCESSES="2")
        replica = one.start().wait_ready()
        wait_protocol(replica, "classic")
        one.submit(task(number, '{"do": "nap", "seconds": 0.1}') for number in range(20))
        one.finish()
        one.started_once()


def test_auto_uses_the_consumer_protocol_if_the_broker_has_it(site: Callable[..., Site]) -> None:
    one = site()
    replica = one.start().wait_ready()
    wait_protocol(replica, "consumer")
    one.submit([task(1, "go")])
    one.finish()
