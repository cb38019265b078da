"""Clients that have lost all brokers. A client without configured brokers is in the same state from its start."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest

from tests.contract.recorder import Recorder
from tests.mock_cluster import BROKER, TOPIC, MockCluster
from worker.core.model import Partition
from worker.kafka import broker_watch, properties
from worker.kafka.broker_watch import BrokerWatch
from worker.kafka.client_consumer import AnswerReader
from worker.kafka.client_producer import RequestProducer
from worker.kafka.consumer import ConfluentConsumer
from worker.kafka.ports import Position
from worker.kafka.producer import ConfluentProducer
from worker.kafka.state_reader import TopicFollower

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(120)

LIMIT = 30.0  # seconds; a passing test needs less than three
CLOSE_SECONDS = 5.0
QUIET = {"log_level": 0}
NOBODY = {**QUIET, "bootstrap.servers": "127.0.0.1:1"}  # no broker ever listens there


@pytest.fixture(autouse=True)
def _frequent_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_watch, "INTERVAL_MS", 100)


def repeat(step: Callable[[], object], *, until: Callable[[], object]) -> None:
    limit = time.monotonic() + LIMIT
    while not until():
        assert time.monotonic() < limit
        step()


def write(cluster: MockCluster, *values: bytes) -> None:
    producer = ck.Producer({**QUIET, "bootstrap.servers": cluster.bootstrap})
    for value in values:
        producer.produce(TOPIC, value)
    assert producer.flush(LIMIT) == 0


def member(bootstrap: str) -> ConfluentConsumer:
    link = properties.Link(bootstrap, "group", {}, {"consumer": 60.0})
    return ConfluentConsumer({"consumer": properties.consumer(link, "b-0", "consumer") | QUIET})


def stranded(client: Any) -> bool:
    return bool(client._watch.stranded)


def test_only_a_client_without_brokers_is_stranded() -> None:
    """The client keeps the address of an unreachable broker. Without any address it can never connect again."""
    away, lost = BrokerWatch(), BrokerWatch()
    clients = ck.Producer(away.watched(NOBODY)), ck.Producer(lost.watched(QUIET))
    repeat(lambda: [client.poll(0.01) for client in clients], until=lambda: lost.stranded)
    for _ in range(50):
        clients[0].poll(0.01)
    assert not away.stranded


def test_one_report_without_brokers_is_not_enough() -> None:
    """A client may have no broker between the removal of its brokers and the return of the configured ones."""
    watch = BrokerWatch()
    with_broker = json.dumps({"brokers": {"b": {"source": "configured"}}}, separators=(",", ":"))
    without = json.dumps({"brokers": {"GroupCoordinator": {"source": "logical"}}}, separators=(",", ":"))
    for report in (without, with_broker, without):
        watch._read(report)
    assert not watch.stranded
    watch._read(without)
    assert watch.stranded


def test_a_member_that_sends_no_heartbeats_requests_a_membership_check(
    cluster: MockCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker_watch, "INTERVAL_MS", 1500)
    consumer = member(cluster.bootstrap)
    recorder = Recorder()
    recorder.listen(consumer, TOPIC)
    repeat(lambda: consumer.poll(1, 0.05), until=lambda: recorder.owned)
    counts = {consumer._watch._sent}

    def poll() -> None:
        consumer.poll(1, 0.05)
        counts.add(consumer._watch._sent)

    repeat(poll, until=lambda: len(counts) > 3)
    assert not consumer._membership_check.pending
    cluster.set("rd_kafka_mock_set_group_consumer_heartbeat_interval_ms", 600_000)  # in effect with the next heartbeat
    consumer._heartbeat_at += LIMIT
    repeat(lambda: consumer.poll(1, 0.05), until=lambda: consumer._membership_check.pending)
    consumer.close()


@pytest.mark.parametrize(("code", "pending"), [(25, True), (22, False)])  # UNKNOWN_MEMBER_ID, ILLEGAL_GENERATION
def test_only_a_commit_of_an_unknown_member_requests_a_membership_check(code: int, *, pending: bool) -> None:
    consumer = member("127.0.0.1:1")
    Recorder().listen(consumer, TOPIC)
    consumer._on_commit(ck.KafkaError(code), [ck.TopicPartition(TOPIC, 0, 1)])
    assert consumer._membership_check.pending is pending
    consumer.close()


def test_a_stranded_producer_continues_with_a_new_client(cluster: MockCluster) -> None:
    """Records that the old client has not delivered fail like any other delivery, so they are produced again."""
    given: dict[str, Any] = dict(QUIET)
    producer = ConfluentProducer(given)
    producer.produce(TOPIC, None, b"1", (), "first")
    given["bootstrap.servers"] = cluster.bootstrap
    confirmed: list[object] = []
    failed: list[object] = []

    def deliver() -> None:
        deliveries = producer.deliveries(0.05)
        confirmed.extend(deliveries.confirmed)
        failed.extend(token for token, _ in deliveries.failed)

    repeat(deliver, until=lambda: failed)
    producer.produce(TOPIC, None, b"2", (), "again")
    repeat(deliver, until=lambda: confirmed)
    assert (failed, confirmed) == (["first"], ["again"])
    producer.close()


def test_a_stranded_consumer_loses_its_partitions_and_is_stale(cluster: MockCluster) -> None:
    """So the process is replaced. ``close`` does not wait for the reply to a commit, because it never comes."""
    consumer = member(cluster.bootstrap)
    recorder = Recorder()
    recorder.listen(consumer, TOPIC)
    repeat(lambda: consumer.poll(1, 0.05), until=lambda: recorder.owned)
    cluster.set("rd_kafka_mock_broker_set_down", BROKER)
    consumer.commit({Partition(TOPIC, 0): Position(0, "")})
    assert not consumer.stale
    consumer._watch.stranded = True
    consumer.poll(1, 0.05)
    assert (consumer.stale, recorder.owned) == (True, set())
    started = time.monotonic()
    consumer.close()
    assert time.monotonic() - started < CLOSE_SECONDS
    assert consumer.member_id  # the supervisor removes the member by this id
    # Here the process goes on. If the client were freed as it is, whichever test runs then would stand still for 45 s.
    cluster.set("rd_kafka_mock_broker_set_up", BROKER)
    consumer._client.close()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_consumer_without_brokers_is_stale_under_each_protocol(protocol: str) -> None:
    made = properties.consumer(properties.Link("", "group", {}, {protocol: 60.0}), "b-0", protocol) | QUIET
    del made["bootstrap.servers"]
    consumer = ConfluentConsumer({protocol: made})
    repeat(lambda: consumer.poll(1, 0.05), until=lambda: consumer.stale)
    consumer.close()


def test_a_stranded_reader_of_the_state_topic_continues_at_its_position(cluster: MockCluster) -> None:
    write(cluster, b"0", b"1")
    given: dict[str, Any] = QUIET | {"bootstrap.servers": cluster.bootstrap, "group.id": "reader"}
    follower = TopicFollower(given, TOPIC, 1)
    found: list[bytes | None] = []

    def read() -> None:
        found.extend(pair.value for pair in follower.poll(0.05))

    repeat(read, until=lambda: len(found) == 2)
    follower._watch.stranded = True
    write(cluster, b"2")
    repeat(read, until=lambda: len(found) == 3)
    assert found == [b"0", b"1", b"2"]
    assert not stranded(follower)
    follower.close()


def test_a_stranded_reader_of_answers_continues_at_its_position(cluster: MockCluster) -> None:
    write(cluster, b"0", b"1")
    given = QUIET | {"bootstrap.servers": cluster.bootstrap, "group.id": "reader"}
    reader = AnswerReader(given, {})
    reader.extend({Partition(TOPIC, 0): 1})
    reader._watch.stranded = True
    found: list[bytes | None] = []

    def read() -> None:
        found.extend(record.value for record in reader.read(0.05))

    repeat(read, until=lambda: found)
    reader._watch.stranded = True
    write(cluster, b"2")
    repeat(read, until=lambda: len(found) == 2)
    assert found == [b"1", b"2"]
    assert not stranded(reader)
    reader.close()


def test_a_stranded_producer_of_requests_continues_with_a_new_client(cluster: MockCluster) -> None:
    """A request that was submitted before fails after its time-out, so its caller does not wait without limit."""
    producer = RequestProducer(QUIET, 2.0)
    failures: list[str] = []
    offsets: list[int] = []

    def send() -> bool:
        return producer.send(
            TOPIC, b"key", b"value", (), confirmed=lambda _p, offset, _t: offsets.append(offset), failed=failures.append
        )

    assert send()
    repeat(lambda: producer.poll(0.05), until=lambda: stranded(producer))
    producer._properties["bootstrap.servers"] = cluster.bootstrap
    producer.poll(0)
    assert send()
    producer.flush(LIMIT)
    assert (offsets, len(failures)) == ([0], 1)
    producer.purge()
