"""Sends records and reports each delivery, for the tools."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any, NamedTuple

import confluent_kafka as ck

from worker.core.model import Partition
from worker.kafka.clients import failure_of, quiet
from worker.kafka.properties import tool_producer
from worker.kafka.validate import made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from worker.core.model import Headers


_BY_KEY = -1  # the client's "no partition given"
# The client sends a record again when a reply is lost. If the broker then only says that it has the record already, the
# client reports success without an offset.
UNPLACED = "Kafka stored it without telling its offset, so its answer cannot be found"


class Delivery(NamedTuple):
    """Where a record was written, or why that is unknown. A record without ``offset`` is somewhere in the topic."""

    partition: Partition
    offset: int | None
    failure: str | None = None


class Outgoing(NamedTuple):
    """A record to send. Without a ``partition`` its key decides."""

    topic: str
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


class Sender:
    """An idempotent producer that chooses partitions like Kafka's Java clients.

    ``timeout`` is the time in seconds in which a record must be confirmed. After that the delivery is unknown: the
    record may have been written.
    """

    def __init__(self, properties: Mapping[str, Any], timeout: float = 60.0) -> None:
        self._client = made(ck.Producer, quiet(tool_producer(properties, timeout), lambda _error: None))

    def send(self, record: Outgoing, on_delivery: Callable[[Delivery], None]) -> None:
        """Queue a record, waiting while the queue is full. ``on_delivery`` is called here or in ``flush``."""

        def report(error: ck.KafkaError | None, message: ck.Message) -> None:
            number, offset = message.partition(), message.offset()
            place = Partition(record.topic, -1 if number is None else number)
            on_delivery(Delivery(place, offset, str(failure_of(error)) if error else None))

        while True:
            try:
                self._client.produce(
                    record.topic,
                    record.value,
                    record.key,
                    partition=_BY_KEY if record.partition is None else record.partition,
                    on_delivery=report,
                    headers=list(record.headers),
                )
            except BufferError:
                self._client.poll(0.1)
            except ck.KafkaException as error:  # for example because it is too large for this client
                on_delivery(Delivery(Partition(record.topic, -1), None, str(failure_of(error.args[0]))))
                return
            else:
                self._client.poll(0)
                return

    def flush(self, timeout: float) -> int:
        """Wait up to ``timeout`` seconds for confirmations. Return the number of records without one."""
        return self._client.flush(timeout)

    def give_up(self) -> None:
        """Drop records that have not been sent and report them as failed. Records in flight stay in flight."""
        self._client.purge(in_queue=True, in_flight=False, blocking=True)


def deliver(sender: Sender, records: Iterable[Outgoing]) -> list[Delivery]:
    """Send records and wait for their deliveries. Return them in the order of the records."""
    deliveries: dict[int, Delivery] = {}
    for number, record in enumerate(records):
        sender.send(record, functools.partial(deliveries.__setitem__, number))
    while sender.flush(1):
        pass
    return [deliveries[number] for number in sorted(deliveries)]
