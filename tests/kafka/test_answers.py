"""The content of an answer, and its partition."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.kafka.support.messages import message
from tests.kafka.support.murmur2 import murmur2, partition_of
from tests.kafka.support.topics import Submission, committed, submit, task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

PARTITIONS = 7  # of the ack topic; the request topic has another number
KEYS = [b"a", b"ab", b"abc", b"abcd", b"abcde", "schlüssel".encode(), b"\x00", b"\xff" * 31, b"k" * 1000, b"21"]
KEYS += [f"job/{number:010}".encode() for number in range(50)]
SECONDS = 0.5


@pytest.mark.parametrize(
    ("key", "expected"),
    # From the tests of Apache Kafka (org.apache.kafka.common.utils.UtilsTest).
    [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)],
)
def test_murmur2_gives_the_values_of_kafka(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_answers_have_the_key_of_the_request_and_the_partition_of_a_java_client(site: Callable[..., Site]) -> None:
    """This also holds for requests without a key, with an empty key, or with a dead letter."""
    one = site(partitions=4, answers=PARTITIONS)
    one.start()
    one.submit(task(number, "go", key) for number, key in enumerate(KEYS))
    one.submit([Submission(b"", b"poison"), Submission(None, b"tombstone"), task(98, "go", b"")])
    (keyless,) = one.submit([Submission(task(99, "go").value, None)])
    one.finish()
    for sent in one.sent:
        answer = one.answer_to(sent)
        assert answer.key == sent.submission.key
        if answer.key is not None:
            assert answer.partition == partition_of(answer.key, PARTITIONS), answer.key
    assert one.answer_to(keyless).response.sequence == 99


def test_an_answer_names_the_worker_the_result_and_the_times(site: Callable[..., Site]) -> None:
    one = site()
    one.start().wait_ready()
    before = time.time()
    computed, slept = one.submit(
        [task(-1, json.dumps({"do": do, "seconds": SECONDS}), partition=0) for do in ("compute", "nap")],
    )
    one.finish()
    after = time.time()
    for sent, result in ((computed, f"computed {SECONDS}"), (slept, f"slept {SECONDS}")):
        response = one.answer_to(sent).response
        assert (response.sequence, response.isprocessed, response.outcome, response.attempt) == (-1, True, 1, 1)
        assert response.result == result.encode()
        assert one.answer_to(sent).origin == (one.requests, sent.partition, sent.offset)
        assert response.worker
        assert not response.HasField("error")
        started, finished = (t.ToNanoseconds() / 1e9 for t in (response.started_at, response.finished_at))
        assert before - 0.01 <= started <= finished - SECONDS + 0.01 <= after
    assert SECONDS <= one.answer_to(computed).response.cpu_seconds <= SECONDS * 1.5
    assert one.answer_to(slept).response.cpu_seconds <= SECONDS * 0.2


def test_messages_with_unknown_fields_are_read(site: Callable[..., Site]) -> None:
    """A reader that knows two fields reads the answer. The worker reads a request with fields unknown to it."""
    one = site()
    one.start()
    later = message("Request")(sequence=5, payload="with more").SerializeToString() + b"\xa2\x06\x03new\xa8\x06\x01"
    (sent,) = one.submit([Submission(later, b"k")])
    one.finish()
    response = message("Response", core=True).FromString(one.answer_to(sent).value)
    assert (response.sequence, response.isprocessed) == (5, True)
    assert one.answer_to(sent).response.result == b"with more"


def test_a_worker_serves_two_request_topics(broker: Broker, site: Callable[..., Site]) -> None:
    """An answer names the topic of its request."""
    one = site(partitions=2)
    other = broker.topic(2)
    one.start(KAFKA_REQUEST_TOPIC=f"{one.requests}, {other}", WORKER_PROCESSES="2").wait_ready()
    here = one.submit(task(number, "go") for number in range(10))
    there = submit(one.bootstrap, other, (task(number, "go") for number in range(10)))
    one.wait_answered([*here, *there])
    until(lambda: sum(committed(one.bootstrap, one.group, other).values()) == 10, one.tails)
    one.stop()
    assert sum(Counter(answer.origin for answer in one.answers.read_all()).values()) == 20


def test_requests_of_aborted_transactions_are_not_started(site: Callable[..., Site]) -> None:
    """The requests around them start, despite the gaps in the offsets that transactions leave."""
    one = site(partitions=1)
    one.start()
    producer = Producer({"bootstrap.servers": one.bootstrap, "transactional.id": one.group})
    producer.init_transactions(30)
    for number, end in enumerate([producer.commit_transaction, producer.abort_transaction] * 3):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(one.requests, task(number, "go").value, b"k")
        assert producer.flush(30) == 0  # otherwise an aborted record would never reach the broker
        end(30)
    until(lambda: len(one.answers.read()) == 9, one.tails)
    until(lambda: one.committed() == {0: 24}, one.tails)  # three records and a marker, six times: there is no lag
    one.stop()
    assert [answer.response.sequence for answer in one.answers.read_all()] == [0] * 3 + [2] * 3 + [4] * 3
    assert set(one.journal.starts().values()) == {1}


def test_a_retry_delays_only_its_own_partition(site: Callable[..., Site]) -> None:
    """No request of this partition overtakes it. The answer has the number of attempts."""
    one = site(partitions=2, WORKER_RETRY_BACKOFF="4s..4s", WORKER_MAX_ATTEMPTS="4")
    one.start().wait_ready()
    stumbling = '{"do": "fail_until", "attempt": 2}'
    asking = '{"do": "retry_until", "attempt": 3, "after": 1}'
    waiting = one.submit(task(n, text, partition=0) for n, text in enumerate([stumbling, "go", asking, "go"]))
    others = one.submit(task(10 + n, '{"do": "nap", "seconds": 0.01}', partition=1) for n in range(50))
    one.wait_answered(others)
    assert not one.counts().keys() & {sent[:3] for sent in waiting}
    one.finish()
    assert [one.answer_to(sent).response.attempt for sent in waiting] == [2, 1, 3, 1]
    starts = [entry for entry in one.journal.entries("start") if entry.partition == 0]
    assert [(entry.offset, entry.attempt) for entry in starts] == [
        (0, 1),
        (0, 2),
        (1, 1),
        (2, 1),
        (2, 2),
        (2, 3),
        (3, 1),
    ]
    # Jitter shortens the default delay by up to half. A delay that the handler asks for is kept.
    assert 2 <= starts[1].time - starts[0].time < 10
    assert 1 <= starts[4].time - starts[3].time < 2 <= starts[5].time - starts[3].time < 8
