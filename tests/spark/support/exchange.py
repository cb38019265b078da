"""The topics of a test, with requests, answers and any other records, and a lake beside them."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import Consumer, Producer, TopicPartition

from pipeline.settings import AnswersSettings, AuditSettings, CollectSettings, CompactSettings, KafkaSettings
from tests.kafka.support.messages import message, request

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.kafka_broker import Broker

SECONDS = 30.0
_QUIET = {"log_level": 2}
Response = message("Response")
OK, FAILED, DEAD_LETTERED = 1, 2, 3


class Seen(NamedTuple):
    """A record that was read."""

    partition: int
    offset: int
    key: Any  # bytes or None
    value: Any


class Place(NamedTuple):
    """The place of a record."""

    topic: str
    partition: int
    offset: int


class Record(NamedTuple):
    """A record to send. With ``partition`` -1, the key decides."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...] = ()
    partition: int = -1


class Site:
    """Three topics of a broker, and a lake."""

    def __init__(self, broker: Broker, folder: Path, job: str = "job", partitions: int = 3) -> None:
        self._broker = broker
        self.bootstrap = broker.bootstrap
        self.lake, self.job = str(folder / "lake"), job
        self.requests, self.acks, self.dead_letters = broker.topics(3, partitions)
        self.partitions = partitions
        self.environment = {
            "KAFKA_BOOTSTRAP_SERVER": self.bootstrap,
            "KAFKA_REQUEST_TOPIC": self.requests,
            "KAFKA_ACK_TOPIC": self.acks,
            "KAFKA_DEAD_LETTER_TOPIC": self.dead_letters,
        }
        self.kafka = KafkaSettings.load(self.environment)

    @property
    def common(self) -> dict[str, Any]:
        return {"job": self.job, "lake": self.lake, "progress": "off"}

    def collecting(self, **more: Any) -> CollectSettings:
        given = {**self.common, "available_now": True, "follow": False, **more}
        return CollectSettings(kafka=self.kafka, **given)

    def auditing(self, **more: Any) -> AuditSettings:
        return AuditSettings(kafka=self.kafka, **{**self.common, **more})

    def answering(self, **more: Any) -> AnswersSettings:
        return AnswersSettings(**{"kafka": self.kafka, **self.common, **more})

    def compacting(self, **more: Any) -> CompactSettings:
        return CompactSettings(**{"kafka": self.kafka, **self.common, **more})

    # -- sending

    def producer(self, **more: Any) -> Producer:
        settings = {"bootstrap.servers": self.bootstrap, "partitioner": "murmur2_random", "linger.ms": 5, **_QUIET}
        return Producer({**settings, **more})

    def send(self, topic: str, records: Iterable[Record], producer: Producer | None = None) -> list[Place]:
        """Send, and wait for the broker. Return the places of the records, in their order."""
        # One request at a time keeps the order. Idempotence would too, but takes half a second to begin.
        sender = producer or self.producer(**{"max.in.flight": 1})
        places: dict[int, Place] = {}

        def on_delivery(number: int) -> Any:
            def confirmed(error: Any, sent: Any) -> None:
                assert error is None, error
                places[number] = Place(topic, sent.partition(), sent.offset())

            return confirmed

        for number, record in enumerate(records):
            while True:
                try:
                    sender.produce(
                        topic,
                        record.value,
                        record.key,
                        record.partition,
                        on_delivery(number),
                        headers=list(record.headers),
                    )
                    break
                except BufferError:
                    sender.poll(0.1)
        assert sender.flush(SECONDS) == 0
        return [places[number] for number in sorted(places)]

    def send_requests(self, sequences: Iterable[int]) -> dict[int, Place]:
        """Send requests of the job as ``submit`` does."""
        numbers = list(sequences)
        records = [Record(self.key(n), request(n, f"payload {n}"), (("job", self.job.encode()),)) for n in numbers]
        return dict(zip(numbers, self.send(self.requests, records), strict=True))

    def key(self, sequence: int) -> bytes:
        return f"{self.job}/{sequence:010d}".encode()

    def answer(self, sequence: int, place: Place, **fields: Any) -> Record:
        """Return the good answer to a request, unless ``fields`` differ."""
        response = Response(
            sequence=sequence, isprocessed=True, outcome=OK, result=f"done {sequence}".encode(), attempt=1, worker="w"
        )
        response.origin.topic, response.origin.partition, response.origin.offset = place
        begin = time.time_ns()
        response.started_at.FromNanoseconds(begin)
        response.finished_at.FromNanoseconds(begin + 1_000_000 * (1 + sequence % 50))
        response.cpu_seconds = 0.001
        response.requested_at.FromNanoseconds(begin)
        for name, value in fields.items():
            if name == "error":
                response.error.type, response.error.message = value
            else:
                setattr(response, name, value)
        return Record(self.key(sequence), response.SerializeToString())

    def dead(self, sequence: int, place: Place) -> Record:
        """Return the answer to a request that was dead-lettered."""
        error = ("ValueError", "no good")
        return self.answer(sequence, place, outcome=DEAD_LETTERED, isprocessed=False, result=b"", error=error)

    def dead_letter(self, sequence: int, place: Place) -> Record:
        """Return the dead letter of a request."""
        headers = (
            ("job", self.job.encode()),
            ("x-origin-topic", place.topic.encode()),
            ("x-origin-partition", str(place.partition).encode()),
            ("x-origin-offset", str(place.offset).encode()),
            ("x-attempts", b"3"),
            ("x-error-type", b"ValueError"),
            ("x-error-message", b"no good"),
        )
        return Record(self.key(sequence), request(sequence, f"payload {sequence}"), headers)

    def transaction(self, records: Iterable[Record], end: str, name: str = "t") -> Producer:
        """Send answers in a transaction that is committed, aborted, or left ``open`` for the caller to end."""
        producer = self.producer(**{"transactional.id": f"{self.acks}-{name}", "transaction.timeout.ms": 300_000})
        producer.init_transactions(SECONDS)
        producer.begin_transaction()
        self.send(self.acks, records, producer)
        if end == "commit":
            producer.commit_transaction(SECONDS)
        elif end == "abort":
            producer.abort_transaction(SECONDS)
        return producer

    # -- reading

    def committed(self, topic: str) -> list[tuple[int, int, bytes | None]]:
        """Return partition, offset and key of every committed record."""
        return [(seen.partition, seen.offset, seen.key) for seen in self.records(topic)]

    def records(self, topic: str) -> list[Seen]:
        """Return every committed record, read without Spark."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": f"look-{topic}",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": 50,  # at the end there is no record to wait for
                **_QUIET,
            }
        )
        consumer.assign([TopicPartition(topic, number, 0) for number in range(self.partitions)])
        found, ended = [], 0
        got: Any
        while ended < self.partitions:
            for got in consumer.consume(1000, 0.2):
                if got.error() is None:
                    found.append(Seen(got.partition(), got.offset(), got.key(), got.value()))
                else:
                    ended += 1
        consumer.close()
        return found

    def move_acks(self) -> None:
        """Use another, empty ack topic from now on, with no collected answers. The manifest and the requests stay."""
        (self.acks,) = self._broker.topics(1, self.partitions)
        self.environment["KAFKA_ACK_TOPIC"] = self.acks
        self.kafka = KafkaSettings.load(self.environment)
        for table in ("bronze", "checkpoints"):
            shutil.rmtree(f"{self.lake}/{table}", ignore_errors=True)
