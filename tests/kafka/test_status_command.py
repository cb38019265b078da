"""``worker status`` against a real broker."""

from __future__ import annotations

import contextlib
import json
import signal
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kafka.support.tool import Tool, dead_letter
from worker.core.model import Partition
from worker.kafka.sender import Outgoing, deliver

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker

pytestmark = pytest.mark.kafka


@pytest.fixture
def tool(broker: Broker) -> Tool:
    return Tool(broker)


def test_status_counts_lag_members_answers_and_dead_letters(tool: Tool) -> None:
    """Each partition is shown with its member. Records that the member has not committed are lag."""
    tool("submit", *"abcdefgh")
    deliver(tool.sender, [Outgoing(tool.answers, b"k", b"v")] * 3 + [Outgoing(tool.dead_letters, b"k", b"v")])
    with member(tool) as partitions:
        report = json.loads(tool("status", "--json").out)
        shown = tool("status")

    assert report["lag"] == 7
    assert (report["answers"]["records"], report["dead_letters"]["records"]) == (3, 1)
    (who,) = report["members"]
    assert (who["client_id"], who["partitions"]) == ("replica-0", sorted(str(place) for place in partitions))
    assert {row["member"] for row in report["partitions"]} == {"replica-0"}
    assert sorted(row["end"] for row in report["partitions"]) == sorted(tool.ends(tool.requests).values())
    assert shown.code == 0
    assert "lag 7" in shown.out
    assert "replica-0" in shown.out


@contextlib.contextmanager
def member(tool: Tool) -> Iterator[list[Partition]]:
    """Start a member that owns every partition and has committed the first record of one. Yield its partitions."""
    assigned: list[Partition] = []

    def record_start(_consumer: Consumer, places: list[TopicPartition]) -> None:
        assigned.extend(Partition(place.topic, place.partition) for place in places)

    consumer = Consumer(
        {
            "bootstrap.servers": tool.environment["KAFKA_BOOTSTRAP_SERVER"],
            "group.id": tool.environment["KAFKA_CONSUMER_GROUP_ID"],
            "client.id": "replica-0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([tool.requests], on_assign=record_start)
    try:
        while (message := consumer.poll(1)) is None:
            pass
        consumer.commit(message=message, asynchronous=False)
        yield assigned
    finally:
        consumer.close()


def test_a_watched_status_has_a_rate_and_the_errors_of_new_dead_letters(tool: Tool) -> None:
    """It prints one line of JSON at a time, until Ctrl-C."""
    tool("submit", *"abc")
    with member(tool):
        process = tool.start("status", "--watch", "--json")
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        deliver(tool.sender, [dead_letter(tool, 1), dead_letter(tool, 2, "KeyError"), dead_letter(tool, 3)])
        later = json.loads(process.stdout.readline())
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 130
        process.communicate()

    assert (first["lag"], first["rate"], first["errors"]) == (2, None, {})
    assert (later["rate"], later["remaining_seconds"]) == (0.0, None)
    assert later["errors"] == {"ValueError": 2, "KeyError": 1}


def test_status_accepts_a_group_that_does_not_exist(tool: Tool) -> None:
    """It reports no members and no lag, also if the dead-letter topic does not exist yet."""
    done = tool("status", "--json", KAFKA_DEAD_LETTER_TOPIC="not-yet")

    report = json.loads(done.out)
    assert (done.code, report["lag"], report["members"]) == (0, 0, [])
    assert report["dead_letters"] == {"topic": "not-yet", "records": None}
