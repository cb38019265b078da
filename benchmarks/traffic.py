"""Requests in, answers out: what the suite itself produces and consumes."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck

from benchmarks.broker import PARTITIONS
from benchmarks.figures import Span
from worker.codec import decode_response, encode_request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from benchmarks.programs import Program
    from worker.codec import Response

    Deal = Callable[[int], tuple[bytes, int]]  # from the number of a request to its key and partition

WARM_UP = -1  # the sequence of requests that only wake a program up
_COORDINATOR_COMES = (
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
PATIENCE = 60.0  # seconds for an answer before the suite gives up


class Place(NamedTuple):
    """Where a program works."""

    address: str
    request_topic: str
    ack_topic: str
    group: str


def produce(producer: ck.Producer, topic: str, value: bytes, key: Any, partition: int = -1) -> None:
    """Queue a record; where the queue is full, wait for room."""
    while True:
        try:
            producer.produce(topic, value, key, partition)
        except BufferError:
            producer.poll(0.01)
        else:
            return


def in_turn(number: int) -> tuple[bytes, int]:
    """A key of its own for each request, and every partition in turn."""
    return b"%d" % number, number % PARTITIONS


def fill(address: str, topic: str, payloads: Iterable[str], deal: Deal = in_turn) -> None:
    """Produce a request for each payload, as fast as it goes, with the key and to the partition that it is dealt."""
    producer = ck.Producer({"bootstrap.servers": address, "linger.ms": 50})
    for sequence, payload in enumerate(payloads):
        key, partition = deal(sequence)
        produce(producer, topic, encode_request(sequence, payload), key, partition)
    producer.flush()


class Settled:
    """Counts the requests of a place that are settled, by what its group has committed.

    A consumer that never joins asks for it: the admin client's call kills the process while the broker still
    loads its groups (librdkafka issue 5040).
    """

    def __init__(self, place: Place) -> None:
        self._consumer = ck.Consumer({"bootstrap.servers": place.address, "group.id": place.group})
        self._partitions = [ck.TopicPartition(place.request_topic, number) for number in range(PARTITIONS)]
        self._count = 0

    def count(self) -> int:
        """How many by now, as far as the broker's coordinator can be asked."""
        try:
            positions = self._consumer.committed(self._partitions, PATIENCE)
        except ck.KafkaException as error:
            if error.args[0].code() not in _COORDINATOR_COMES:
                raise
        else:
            self._count = sum(max(0, position.offset) for position in positions)
        return self._count

    def close(self) -> None:
        self._consumer.close()


class Reader:
    """Reads the answers that a program gives at its place, from the first one on."""

    def __init__(self, place: Place, program: Program) -> None:
        self._program = program
        self._consumer = ck.Consumer(
            {"bootstrap.servers": place.address, "group.id": "reader", "enable.auto.commit": False}
        )
        self._consumer.assign(
            [ck.TopicPartition(place.ack_topic, number, ck.OFFSET_BEGINNING) for number in range(PARTITIONS)]
        )

    def answers(self, count: int, patience: float = PATIENCE) -> Iterator[Response]:
        """The next answers, so many. See ``next``."""
        while count > 0:
            yield self.next(patience)
            count -= 1

    def next(self, patience: float = PATIENCE) -> Response:
        """The next answer. Raises EndedError when the program has ended, TimeoutError after so many seconds."""
        deadline = time.monotonic() + patience
        while (message := self._consumer.poll(1)) is None:
            self._program.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"no answer for {patience:g} s; the end of the log:\n{self._program.last_words(5)}")
        value: Any = message.value()  # bytes: no deserializer is set
        return decode_response(value)

    def close(self) -> None:
        self._consumer.close()


def warm_up(place: Place, reader: Reader) -> None:
    """A request to every partition, and their answers: then every process has joined, loaded and run something."""
    producer = ck.Producer({"bootstrap.servers": place.address, "linger.ms": 0})
    for number in range(PARTITIONS):
        produce(producer, place.request_topic, encode_request(WARM_UP, "0"), b"warm-up", number)
    producer.flush()
    for _ in reader.answers(PARTITIONS):
        pass


def round_trips(place: Place, reader: Reader, gaps: Iterable[float]) -> Iterator[float]:
    """One request at a time, each after its gap in seconds: the time from ``produce`` to the answer at a consumer."""
    producer = ck.Producer({"bootstrap.servers": place.address, "linger.ms": 0})
    for sequence, gap in enumerate(gaps):
        time.sleep(gap)
        value = encode_request(sequence, "0")
        begin = time.perf_counter()
        producer.produce(place.request_topic, value, b"%d" % sequence, sequence % PARTITIONS)
        while reader.next().sequence != sequence:
            pass
        yield time.perf_counter() - begin
        producer.poll(0)


def span_of(answer: Response) -> Span:
    """When a task ran, and where."""
    return Span(
        answer.worker,
        answer.started_at.ToNanoseconds() / 1e9,
        answer.finished_at.ToNanoseconds() / 1e9,
        answer.cpu_seconds,
    )
