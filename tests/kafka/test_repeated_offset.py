"""Two records with the same offset, as a broker may write them if it continues after its disk was full."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import task
from tests.kafka_broker import running_broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.kafka.support.site import Site
    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def separate_broker() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker


def repeat_last_batch(broker: Broker, topic: str) -> None:
    """Append the last batch of partition 0 to its log again, with the same offset."""
    broker.script("stop")
    (segment,) = broker.folder.rglob(f"{topic}-0/*.log")
    content = segment.read_bytes()
    start = 0
    while (end := start + 12 + int.from_bytes(content[start + 8 : start + 12], "big")) < len(content):
        start = end
    segment.write_bytes(content + content[start:])
    broker.script("up")


def test_the_second_record_of_an_offset_is_reported_and_skipped(
    site: Callable[..., Site], separate_broker: Broker
) -> None:
    one = site(at=separate_broker, partitions=1)
    for _ in range(2):
        one.submit([task(0, "go")])
    repeat_last_batch(separate_broker, one.requests)
    one.submit([task(1, "go")])
    replica = one.start().wait_ready()
    one.finish()
    (event,) = replica.events("record.repeated")
    assert (event["partition"], event["offset"]) == (0, 1)
