"""Requests in, answers out: the suite's clients."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any, Protocol

import confluent_kafka as ck

from benchmarks.broker import PARTITIONS
from benchmarks.endpoint import round_robin
from benchmarks.figures import Span
from worker.codec import decode_response, encode_request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from benchmarks.broker import Broker
    from benchmarks.endpoint import Endpoint, Partitioner
    from benchmarks.processes import ProcessGroup
    from worker.codec import Response

WARM_UP = -1  # the sequence of requests that only warm up a program
_COORDINATOR_COMES = (
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
ANSWER_SECONDS = 60.0  # seconds until the suite stops waiting for an answer


def produce(producer: ck.Producer, topic: str, value: bytes, key: Any, partition: int = -1) -> None:
    """Queue a record. Wait while the queue is full."""
    while True:
        try:
            producer.produce(topic, value, key, partition)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def fill(address: str, topic: str, payloads: Iterable[str], partitioner: Partitioner = round_robin) -> None:
    """Produce a request for each payload as fast as possible, with key and partition from the partitioner."""
    producer = ck.Producer({"bootstrap.servers": address, "linger.ms": 50})
    for sequence, payload in enumerate(payloads):
        key, partition = partitioner(sequence)
        produce(producer, topic, encode_request(sequence, payload), key, partition)
    producer.flush()


class Counter(Protocol):
    """A counter of the settled requests of an endpoint."""

    def count(self) -> int: ...
    def close(self) -> None: ...


class Settled:
    """A counter of the settled requests of an endpoint, from the offsets that its group has committed.

    It uses a consumer that never joins: the admin client's call aborts the process while the broker still loads its
    groups (librdkafka issue 5040).
    """

    def __init__(self, endpoint: Endpoint) -> None:
        self._consumer = ck.Consumer({"bootstrap.servers": endpoint.address, "group.id": endpoint.group})
        self._partitions = [ck.TopicPartition(endpoint.request_topic, number) for number in range(endpoint.partitions)]
        self._count = 0

    def count(self) -> int:
        """Return their number, or the last known one while the coordinator is not available."""
        try:
            positions = self._consumer.committed(self._partitions, ANSWER_SECONDS)
        except ck.KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_COMES:
                raise
        else:
            self._count = sum(max(0, position.offset) for position in positions)
        return self._count

    def close(self) -> None:
        self._consumer.close()


class Answered:
    """A counter of the answered requests of an endpoint, for a program that commits no offsets."""

    def __init__(self, broker: Broker, endpoint: Endpoint) -> None:
        self._broker = broker
        self._topic = endpoint.ack_topic

    def count(self) -> int:
        """Return their number."""
        return self._broker.records(self._topic)

    def close(self) -> None:
        """Do nothing, because nothing is open."""


class Reader:
    """A reader of the answers of a program, from the first one on."""

    def __init__(self, endpoint: Endpoint, program: ProcessGroup) -> None:
        self._program = program
        self._endpoint = endpoint
        self._open(dict.fromkeys(range(PARTITIONS), ck.OFFSET_BEGINNING))

    def _open(self, offsets: dict[int, int]) -> None:
        self._consumer = ck.Consumer(
            {
                "bootstrap.servers": self._endpoint.address,
                "group.id": "reader",
                "enable.auto.commit": False,
                "log_level": 0,  # it would warn of partitions that have no leader yet
            }
        )
        topic = self._endpoint.ack_topic
        self._consumer.assign([ck.TopicPartition(topic, number, offset) for number, offset in offsets.items()])

    @contextlib.contextmanager
    def disconnected(self) -> Iterator[None]:
        """Have no client meanwhile, for a restart of the broker. Afterwards go on where the reader was."""
        positions = self._consumer.position(self._consumer.assignment())
        self._consumer.close()
        yield
        self._open({each.partition: each.offset if each.offset >= 0 else ck.OFFSET_BEGINNING for each in positions})

    def answers(self, count: int, seconds: float = ANSWER_SECONDS) -> Iterator[Response]:
        """Yield the next ``count`` answers. See ``next``."""
        while count > 0:
            yield self.next(seconds)
            count -= 1

    def next(self, seconds: float = ANSWER_SECONDS) -> Response:
        """Return the next answer. Raise EndedError if the program has ended, TimeoutError after ``seconds``."""
        deadline = time.monotonic() + seconds
        while (message := self._consumer.poll(1)) is None:
            self._program.check()
            if time.monotonic() > deadline:
                output = self._program.last_output(5)
                raise TimeoutError(f"no answer for {seconds:g} s; the end of the log:\n{output}")
        value: Any = message.value()  # bytes: no deserializer is set
        return decode_response(value)

    def poll(self, seconds: float) -> Response | None:
        """Return the next answer, or None if none arrives within ``seconds``."""
        message = self._consumer.poll(seconds)
        if message is None or message.error() is not None:  # of a broker that has just started
            return None
        value: Any = message.value()  # bytes: no deserializer is set
        return decode_response(value)

    def close(self) -> None:
        self._consumer.close()


def warm_up(endpoint: Endpoint, reader: Reader) -> ck.Producer:
    """Send a request to every partition and wait for the answers, so that every process has joined and run a task.

    Return the producer. It has a connection, so what it sends next takes no longer than what follows.
    """
    producer = ck.Producer({"bootstrap.servers": endpoint.address, "linger.ms": 0})
    for number in range(endpoint.partitions):
        produce(producer, endpoint.request_topic, encode_request(WARM_UP, "0"), b"warm-up", number)
    producer.flush()
    for _ in reader.answers(endpoint.partitions):
        pass
    return producer


def round_trips(endpoint: Endpoint, reader: Reader, producer: ck.Producer, gaps: Iterable[float]) -> Iterator[float]:
    """Send one request at a time, each after its gap. Yield the seconds from ``produce`` to the received answer.

    ``producer`` is that of ``warm_up``.
    """
    for sequence, gap in enumerate(gaps):
        time.sleep(gap)
        value = encode_request(sequence, "0")
        begin = time.perf_counter()
        producer.produce(endpoint.request_topic, value, b"%d" % sequence, sequence % PARTITIONS)
        while reader.next().sequence != sequence:
            pass
        yield time.perf_counter() - begin
        producer.poll(0)


def span_of(answer: Response) -> Span:
    """Return when and where a task ran."""
    return Span(
        answer.worker,
        answer.started_at.ToNanoseconds() / 1e9,
        answer.finished_at.ToNanoseconds() / 1e9,
        answer.cpu_seconds,
    )
