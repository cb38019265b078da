"""The producer port over confluent-kafka. Poll thread only: a second thread would starve at the client's lock."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.errors import ClientFatalError
from worker.kafka.clients import CallbackErrors, failure_of, with_callbacks
from worker.kafka.ports import Deliveries, KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.core.model import Headers


_QUEUE_FULL = KafkaFailure("_QUEUE_FULL", "the client's queue is full", retriable=True)


class ConfluentProducer:
    """An idempotent producer."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._callback_errors = CallbackErrors()
        self._client = ck.Producer(with_callbacks(properties, self._callback_errors))
        self._confirmed: list[object] = []
        self._failed: list[tuple[object, KafkaFailure]] = []
        self._report = self._reporter()

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
        deliveries = Deliveries(self._confirmed, self._failed)
        self._confirmed, self._failed = [], []
        return deliveries

    def close(self) -> None:
        """See ``ports.Producer``."""
        self._client.purge()
        self._client.flush(0)
