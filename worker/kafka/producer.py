"""The producer's port over confluent-kafka. Poll thread only: a second would starve in the client's gate."""

from __future__ import annotations

from types import MethodType
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.errors import ClientFatalError
from worker.kafka.clients import Guard, failure_of, with_callbacks
from worker.kafka.ports import Deliveries, KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.core.model import Headers


class ConfluentProducer:
    """An idempotent producer."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._guard = Guard()
        self._client = ck.Producer(with_callbacks(properties, self._guard))
        self._confirmed: list[object] = []
        self._failed: list[tuple[object, KafkaFailure]] = []
        self._report = self._reporter()

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, token: object) -> None:
        """See ``ports.Producer``."""
        report = MethodType(self._report, (token,))  # a method of None there is not
        while True:
            try:
                if headers:
                    self._client.produce(topic, value, key, on_delivery=report, headers=list(headers))
                else:
                    self._client.produce(topic, value, key, -1, report)
            except BufferError:  # the client's queue is full: let it deliver
                self._client.poll(0.1)
            except ck.KafkaException as error:
                self._failed.append((token, failure_of(error.args[0])))
                return
            else:
                return

    def _reporter(self) -> Callable[[tuple[object], ck.KafkaError | None, ck.Message], None]:
        """What is told of each delivery, as a method of its token: the least there is to make for every answer."""

        def report(tokens: tuple[object], error: ck.KafkaError | None, _message: ck.Message) -> None:
            if error is None:
                self._confirmed += tokens
            elif error.fatal():
                self._guard.keep(ClientFatalError(f"the producer failed: {error.name()}: {error.str()}"))
            else:
                self._failed.append((tokens[0], failure_of(error)))

        return report

    def deliveries(self, timeout: float) -> Deliveries:
        """See ``ports.Producer``."""
        if timeout > 0:
            self._client.flush(timeout)
        else:
            self._client.poll(0)
        self._guard.check()
        deliveries = Deliveries(self._confirmed, self._failed)
        self._confirmed, self._failed = [], []
        return deliveries

    def close(self) -> None:
        """See ``ports.Producer``."""
        self._client.purge()
        self._client.flush(0)
