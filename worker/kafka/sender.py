"""Sending records and knowing of each what became of it, for the tools."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck

from worker.core.model import Partition
from worker.kafka.cluster import one_line, quiet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from worker.core.model import Headers


class Delivery(NamedTuple):
    """Where a record was written, or why it is not known to be."""

    partition: Partition
    offset: int
    failure: str | None = None


class Outgoing(NamedTuple):
    """A record to be sent."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


class Sender:
    """An idempotent producer that puts a key where Kafka's Java clients would.

    ``timeout`` is how many seconds a record may take to be confirmed. A delivery that failed so is unknown,
    not undone: the record may have been written.
    """

    def __init__(self, properties: Mapping[str, Any], timeout: float = 60.0) -> None:
        self._client = ck.Producer(
            quiet(properties, lambda _error: None)
            | {
                "enable.idempotence": True,
                "partitioner": "murmur2_random",
                "message.timeout.ms": int(timeout * 1000),
                "linger.ms": 5,
                # The topic's limit decides about a record, not the client's. The broker holds that limit against the
                # whole batch, and this client does not split one that is refused: so batches stay small.
                "message.max.bytes": 64 * 1024 * 1024,
                "batch.size": 16 * 1024,
            }
        )

    def send(self, record: Outgoing, told: Callable[[Delivery], None]) -> None:
        """Queue a record, waiting while the queue is full. ``told`` is called from here or from ``flush``."""

        def report(error: ck.KafkaError | None, message: ck.Message) -> None:
            number, offset = message.partition(), message.offset()
            place = Partition(record.topic, -1 if number is None else number)
            told(Delivery(place, -1 if offset is None else offset, one_line(error) if error else None))

        while True:
            try:
                self._client.produce(
                    record.topic, record.value, record.key, on_delivery=report, headers=list(record.headers)
                )
            except BufferError:
                self._client.poll(0.1)
            except ck.KafkaException as error:  # too large for this client, for one
                told(Delivery(Partition(record.topic, -1), -1, one_line(error)))
                return
            else:
                self._client.poll(0)
                return

    def flush(self, timeout: float) -> int:
        """Wait at most ``timeout`` seconds for confirmations; returns how many are still awaited."""
        return self._client.flush(timeout)

    def give_up(self) -> None:
        """Take back what was not sent yet: ``told`` hears of it as failed. What is under way stays so."""
        self._client.purge(in_queue=True, in_flight=False, blocking=True)


def deliver(sender: Sender, records: Iterable[Outgoing]) -> list[Delivery]:
    """Send records and wait for what became of each, in the order of the records."""
    deliveries: dict[int, Delivery] = {}
    for number, record in enumerate(records):
        sender.send(record, functools.partial(deliveries.__setitem__, number))
    while sender.flush(1):
        pass
    return [deliveries[number] for number in sorted(deliveries)]
