"""Follow-up requests on Kafka: a chain under kills, and topics that cannot be written to."""

from __future__ import annotations

import os
import random
import signal
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import Reader, task
from tests.kafka.support.waiting import until
from tests.kafka_broker import configure_topic, create_topics, delete_topic

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Record

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

ITEMS, KILLS = 60, 3
STAGES = {"WORKER_HANDLER": "stages:handle", "WORKER_HANDLER_KWARGS": "{}"}


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_chain_of_three_stages_completes_under_kills(site: Callable[..., Site], guarantee: str) -> None:
    """Under exactly-once there is one request and one answer per item and stage. Under at-least-once: at least one."""
    one = site(partitions=6, WORKER_GUARANTEE=guarantee, WORKER_PROCESSES="2", WORKER_MAX_ATTEMPTS="20", **STAGES)
    replica = one.start()
    replica.wait_ready()
    one.submit(task(number, f"a {number}") for number in range(ITEMS))
    for number in range(KILLS):
        wanted = (number + 1) * ITEMS // 2
        until(lambda: len(one.answers.read()) >= wanted, one.tails)  # noqa: B023 - called at once
        os.kill(random.choice(replica.pids()), signal.SIGKILL)
    expected = Counter(f"{stage} {number}" for stage in "abc" for number in range(ITEMS))

    def results() -> Counter[str]:
        return Counter(record.response.result.decode() for record in one.answers.read())

    until(lambda: results().keys() == expected.keys(), one.tails, 120.0)
    one.wait_committed()
    one.stop()
    one.answers.read_all()
    requests = records_in(one, one.requests, 6)
    parents = Counter(dict(record.headers).get("x-parent") for record in requests)
    if guarantee == "exactly-once":
        assert results() == expected
        assert len(requests) == 3 * ITEMS
        assert all(count == 1 for parent, count in parents.items() if parent), "a request has two follow-ups"
    origins = {record.origin for record in one.answers.records}
    assert len(origins) == len(requests), "every request has an answer"


def test_a_follow_up_to_an_invalid_topic_makes_a_dead_letter(site: Callable[..., Site]) -> None:
    sites = [site(WORKER_GUARANTEE=name, **STAGES) for name in ("exactly-once", "at-least-once")]
    for one in sites:
        one.submit([task(0, "astray", partition=0), task(1, "c 1", partition=0)])
        one.start()
    for one in sites:
        one.finish(seconds=90.0)
        error = one.answer_to(one.sent[0]).response.error
        assert (error.type, one.answer_to(one.sent[1]).outcome) == ("FollowUpRefused", "OK"), error.message


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_an_ack_topic_that_is_missing_for_a_while_makes_no_dead_letter(
    site: Callable[..., Site], guarantee: str
) -> None:
    """The topic of the follow-up request exists, so only the answer waits."""
    one = site(partitions=1, WORKER_GUARANTEE=guarantee, **STAGES)
    replica = one.start()
    replica.wait_ready()
    one.submit([task(0, "c 0", partition=0)])  # now the client knows the topic
    one.wait_answered()
    one.answers.close()
    delete_topic(one.bootstrap, one.ack)
    one.submit([task(1, "b 1", partition=0)])
    failed = "transaction.aborted" if guarantee == "exactly-once" else "delivery.failed"
    until(lambda: replica.events(failed), one.tails, 90.0)
    create_topics(one.bootstrap, [one.ack], one.answer_partitions)
    one.answers = Reader(one.bootstrap, one.ack, one.answer_partitions)
    until(lambda: len(one.answers.read()) >= 2, one.tails, 60.0)
    assert sorted(record.response.result.decode() for record in one.answers.records) == ["b 1", "c 1"]
    one.stop()


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_follow_up_to_a_deleted_topic_makes_a_dead_letter(site: Callable[..., Site], guarantee: str) -> None:
    one, deleted = site(partitions=1, WORKER_GUARANTEE=guarantee, **STAGES), f"deleted-{guarantee}"
    create_topics(one.bootstrap, [deleted], 1)
    one.start()
    one.submit([task(0, f"to {deleted}", partition=0)])
    one.wait_answered()
    delete_topic(one.bootstrap, deleted)
    one.submit([task(1, f"to {deleted}", partition=0)])
    one.finish(seconds=90.0)
    assert [one.answer_to(sent).outcome for sent in one.sent] == ["OK", "DEAD_LETTERED"]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_follow_ups_that_exceed_the_limit_of_their_topic_only_together_are_sent(
    site: Callable[..., Site], guarantee: str
) -> None:
    """The broker applies the limit to a whole batch, and all five are in one."""
    one, small = site(partitions=1, WORKER_GUARANTEE=guarantee, **STAGES), f"small-{guarantee}"
    create_topics(one.bootstrap, [small], 1, {"max.message.bytes": "2000"})
    one.start()
    one.submit([task(0, f"several-to {small}", partition=0)])
    one.finish()
    assert one.answer_to(one.sent[0]).outcome == "OK"
    assert len(records_in(one, small)) == 5


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once"])
def test_a_refused_follow_up_makes_no_dead_letter_of_another_request(site: Callable[..., Site], guarantee: str) -> None:
    """A compacted topic refuses a record without a key, and the client reports the error for its whole batch."""
    one, compacted = site(partitions=1, WORKER_GUARANTEE=guarantee, **STAGES), f"compacted-{guarantee}"
    create_topics(one.bootstrap, [compacted], 1, {"cleanup.policy": "compact"})
    words = ["keyed-to"] * 20
    words[5] = "to"
    one.submit(task(number, f"{word} {compacted}", partition=0) for number, word in enumerate(words))
    one.start()
    one.finish(seconds=60.0)
    outcomes = [one.answer_to(sent).outcome for sent in one.sent]
    assert outcomes == ["DEAD_LETTERED" if word == "to" else "OK" for word in words]
    assert len(records_in(one, compacted)) == 19


def test_a_follow_up_with_a_wrong_timestamp_waits(site: Callable[..., Site]) -> None:
    """The client reports an invalid record, although only a clock is wrong. Here the topic takes no record of the past.

    A record that is sent in the millisecond of its creation is accepted, so most of them wait, but not all. Not under
    exactly-once: there the topic also refuses the broker's record that ends a transaction, so none can end.
    """
    one = site(partitions=1, **STAGES)
    create_topics(one.bootstrap, ["dated"], 1, {"message.timestamp.before.max.ms": "0"})
    one.submit(task(number, "several-to dated", partition=0) for number in range(20))
    replica = one.start()
    until(lambda: "INVALID_TIMESTAMP" in {event["code"] for event in replica.events("delivery.failed")}, one.tails)
    configure_topic(one.bootstrap, "dated", {"message.timestamp.before.max.ms": "3600000"})
    one.finish(seconds=90.0)
    assert [one.answer_to(sent).outcome for sent in one.sent] == ["OK"] * 20
    assert len(records_in(one, "dated")) == 100


def records_in(one: Site, topic: str, partitions: int = 1) -> list[Record]:
    """Return the committed records of a topic."""
    reader = Reader(one.bootstrap, topic, partitions)
    reader.read_all()
    reader.close()
    return reader.records
