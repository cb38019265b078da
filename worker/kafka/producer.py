"""The producer port over confluent-kafka. Poll thread only: a second thread would starve at the client's lock."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.errors import ClientFatalError
from worker.kafka.broker_watch import BrokerWatch
from worker.kafka.clients import CallbackErrors, failure_of, with_callbacks
from worker.kafka.ports import Deliveries, KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.core.model import Headers


PURGE_SECONDS = 1.0  # for the reports of what was purged
_QUEUE_FULL = KafkaFailure("_QUEUE_FULL", "the client's queue is full", retriable=True)


class ConfluentProducer:
    """An idempotent producer. If its client has lost all brokers, it goes on with a new one."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        self._callback_errors = CallbackErrors()
        self._confirmed: list[object] = []
        self._failed: list[tuple[object, KafkaFailure]] = []
        self._report = self._reporter()
        self._connect()

    def _connect(self) -> None:
        self._watch = BrokerWatch()
        self._client = ck.Producer(self._watch.watched(with_callbacks(self._properties, self._callback_errors)))

    def produce(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        token: object,
        *,
        partition: int = -1,
    ) -> None:
        """See ``ports.Producer``. ``partition`` -1: the one where the key belongs."""
        report = MethodType(self._report, (token,))
        try:
            self._queue(topic, key, value, headers, report, partition)
        except BufferError:  # the client's queue is full; the caller produces the record again later
            self._failed.append((token, _QUEUE_FULL))
        except ck.KafkaException as error:
            self._failed.append((token, failure_of(error.args[0])))

    def _queue(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, report: Any, partition: int
    ) -> None:
        if headers:
            self._client.produce(topic, value, key, partition, on_delivery=report, headers=list(headers))
        else:
            self._client.produce(topic, value, key, partition, report)

    def _reporter(self) -> Callable[[tuple[object], ck.KafkaError | None, ck.Message], None]:
        """Return a delivery callback bound to its token, the cheapest object to create for every answer."""

        def report(tokens: tuple[object], error: ck.KafkaError | None, _message: ck.Message) -> None:
            if error is None:
                self._confirmed += tokens
            elif error.fatal():
                self._callback_errors.keep(ClientFatalError(f"the producer failed: {error.name()}: {error.str()}"))
            else:
                self._failed.append((tokens[0], failure_of(error)))

        return report

    def deliveries(self, timeout: float) -> Deliveries:
        """See ``ports.Producer``."""
        if timeout > 0:
            self._client.flush(timeout)
        else:
            self._client.poll(0)
        self._callback_errors.check()
        if self._watch.stranded:
            self._replace_client()
        deliveries = Deliveries(self._confirmed, self._failed)
        self._confirmed, self._failed = [], []
        return deliveries

    def _replace_client(self) -> None:
        """Report what the client has not delivered as failed, so that the caller produces it again, and connect."""
        self._client.purge()
        if not self._client.flush(PURGE_SECONDS):  # otherwise the next call goes on with this client
            self._connect()

    def close(self) -> None:
        """See ``ports.Producer``."""
        self._client.purge()
        self._client.flush(0)
