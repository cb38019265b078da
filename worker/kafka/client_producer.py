"""The producer of ``worker.Client``. Any thread sends, and one thread polls for confirmations."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.core.model import Partition
from worker.errors import BrokerError
from worker.kafka.broker_watch import BrokerWatch
from worker.kafka.clients import one_line, quiet
from worker.kafka.properties import RELIABLE_PRODUCER
from worker.kafka.sender import UNPLACED
from worker.kafka.validate import made

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.core.model import Headers

    Confirmed = Callable[[Partition, int, int], None]
    Failed = Callable[[str], None]


class RequestProducer:
    """An idempotent producer that chooses the partition of a key like Kafka's Java clients.

    A record may take ``timeout`` seconds to be confirmed. After that its delivery is unknown; it may still be written.
    If the client has lost all brokers, the next records go to a new one.
    """

    def __init__(self, properties: Mapping[str, Any], timeout: float) -> None:
        self._properties = quiet(properties, lambda _error: None) | RELIABLE_PRODUCER
        self._properties |= {
            "message.timeout.ms": int(timeout * 1000),
            "linger.ms": 1,
            "queue.buffering.max.messages": 0,  # no limit: the caller limits the number, and the client the bytes
            # The broker applies the topic's limit to the whole batch, and this client does not split a refused batch,
            # so batches stay small.
            "batch.size": 16 * 1024,
        }
        self._former: list[ck.Producer] = []  # clients that were replaced, whose records fail when their time is over
        self._connect()

    def _connect(self) -> None:
        self._watch = BrokerWatch(logged=False)
        self._client = made(ck.Producer, self._watch.watched(self._properties))

    def send(
        self, topic: str, key: bytes | None, value: bytes, headers: Headers, *, confirmed: Confirmed, failed: Failed
    ) -> bool:
        """Queue a record. Return False if the queue is full.

        ``confirmed`` gets the partition, the offset and the timestamp in milliseconds (0: unknown). ``failed`` gets the
        reason. ``poll`` and ``flush`` call them; this method also calls ``failed`` if the client refuses the record.
        """

        def report(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is not None:
                failed(one_line(error))
                return
            number, offset, (_, timestamp) = message.partition(), message.offset(), message.timestamp()
            if number is None or offset is None:
                failed(UNPLACED)
            else:
                confirmed(Partition(topic, number), offset, max(0, timestamp))

        try:
            self._client.produce(topic, value, key, on_delivery=report, headers=list(headers))
        except BufferError:
            return False
        except ck.KafkaException as error:  # for example because it is too large for this client
            failed(one_line(error))
        return True

    def poll(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for confirmations and report them. Raise BrokerError after a fatal error."""
        try:
            if self._watch.stranded:
                self._former = [*filter(len, self._former), self._client]
                self._connect()
            for client in self._former:
                client.poll(0)
            self._client.poll(timeout)
        except ck.KafkaException as error:
            raise BrokerError(one_line(error)) from error

    def flush(self, timeout: float) -> None:
        """Wait at most ``timeout`` seconds for all confirmations, and report them."""
        end = time.monotonic() + timeout
        for client in (self._client, *self._former):
            with contextlib.suppress(ck.KafkaException):  # fatal; ``poll`` reports it
                client.flush(max(0.0, end - time.monotonic()))

    def purge(self) -> None:
        """Give up all unconfirmed records and report them as failed."""
        for client in (*self._former, self._client):
            client.purge()
            with contextlib.suppress(ck.KafkaException):
                client.flush(1)
