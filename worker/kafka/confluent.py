"""The ports over confluent-kafka. Used from the poll thread only: a second thread would starve in this client's gate.

Callbacks run inside ``poll``, ``flush`` and ``close``. An exception that left one would lose records inside the client,
so the first is kept and raised when the client's call has returned.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING, Any, cast

import confluent_kafka as ck
import structlog

from worker.core.model import Headers, Partition, Record
from worker.errors import ClientFatalError
from worker.kafka.ports import Deliveries, KafkaFailure, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

log = structlog.get_logger("kafka")
_UNSUPPORTED = (ck.KafkaError.UNSUPPORTED_VERSION, ck.KafkaError._UNSUPPORTED_FEATURE)  # noqa: SLF001 - so named
_UNSUPPORTED_TEXTS = tuple(ck.KafkaError(code).str() for code in _UNSUPPORTED)
# With auto.offset.reset=error: the partition would stand still for ever, and nobody would know.
_NO_OFFSET = ck.KafkaError._AUTO_OFFSET_RESET  # noqa: SLF001 - as the next
_FATAL = ck.KafkaError._FATAL  # noqa: SLF001 - a public constant of the client in spite of its name


def failure_of(error: ck.KafkaError) -> KafkaFailure:
    """The client's error as a value of ours."""
    return KafkaFailure(error.name(), error.str(), error.retriable())


class _Guard:
    """Keeps the first exception of a callback until the client's call is over."""

    def __init__(self) -> None:
        self._kept: BaseException | None = None

    def call(self, callback: Callable[..., None], *arguments: object) -> None:
        try:
            callback(*arguments)
        except BaseException as error:  # noqa: BLE001 - kept, and raised by check()
            self.keep(error)

    def keep(self, error: BaseException) -> None:
        self._kept = self._kept or error

    def check(self) -> None:
        if self._kept is not None:
            kept, self._kept = self._kept, None
            raise kept


def _is_unsupported(error: ck.KafkaError) -> bool:
    """Whether the broker does not have what was asked of it. Of a fatal error only the text tells the cause."""
    return error.code() in _UNSUPPORTED or (
        error.code() == _FATAL and any(text in error.str() for text in _UNSUPPORTED_TEXTS)
    )


def _client_error(guard: _Guard, error: ck.KafkaError) -> None:
    """The client's error callback: information, unless it is fatal."""
    if error.fatal() or error.code() == _FATAL:
        guard.keep(ClientFatalError(f"the Kafka client failed: {error.name()}: {error.str()}"))
    else:
        log.warning("client.error", code=error.name(), reason=error.str())


def _with_callbacks(properties: Mapping[str, Any], guard: _Guard, **more: Any) -> dict[str, Any]:
    return {
        **properties,
        "error_cb": functools.partial(_client_error, guard),
        "logger": logging.getLogger("librdkafka"),
        **more,
    }


class ConfluentConsumer:
    """A member of the group. Tries the protocols in the order given, as the broker may not have the first."""

    def __init__(self, properties: Mapping[str, Mapping[str, Any]]) -> None:
        self._properties = dict(properties)
        self._guard = _Guard()
        self._partitions: dict[tuple[str, int], Partition] = {}
        self._kept: list[Record] = []  # fetched, and not given out yet
        self._listener: Listener | None = None
        self._topics: list[str] = []
        self._refused = False  # the broker does not have the protocol, but there is another to try
        self.protocol = next(iter(self._properties))
        self._client = self._make()

    def _make(self) -> ck.Consumer:
        callbacks = {"on_commit": self._on_commit, "error_cb": self._on_error}
        return ck.Consumer(_with_callbacks(self._properties[self.protocol], self._guard, **callbacks))

    def subscribe(self, topics: Sequence[str], listener: Listener) -> None:
        """See ``ports.Consumer``."""
        self._listener = listener
        self._topics = list(topics)
        self._client.subscribe(
            self._topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_lost
        )

    def poll(self, limit: int, timeout: float) -> list[Record]:
        """See ``ports.Consumer``."""
        if not self._kept:
            self._kept = self._records(self._consume(limit, timeout))
        self._guard.check()  # before records are given out: they wait here when a callback has raised beside them
        records, self._kept = self._kept[:limit], self._kept[limit:]
        if self._refused:
            self._fall_back()
        return records

    def _consume(self, limit: int, timeout: float) -> list[ck.Message]:
        if timeout <= 0:
            return self._client.consume(limit, 0)
        first = self._client.poll(timeout)
        if first is None:
            return []
        return [first, *self._client.consume(limit - 1, 0)] if limit > 1 else [first]

    def _records(self, messages: Iterable[ck.Message]) -> list[Record]:
        records = []
        partitions = self._partitions
        for message in messages:
            error = message.error()
            if error is not None:
                self._message_error(error)
                continue
            # A record that is no error has all of these; the types say "or None" for errors' sake.
            place = cast("tuple[str, int]", (message.topic(), message.partition()))
            partition = partitions.get(place)
            if partition is None:
                partition = partitions[place] = Partition(*place)
            records.append(
                Record(
                    partition,
                    cast("int", message.offset()),
                    message.key(),
                    message.value(),
                    tuple(cast("list[tuple[str, bytes | None]]", message.headers() or ())),
                    message.timestamp()[1],
                )
            )
        return records

    def _message_error(self, error: ck.KafkaError) -> None:
        if self._can_fall_back(error):
            self._refused = True
        elif error.fatal() or error.code() in (_FATAL, _NO_OFFSET):
            message = f"the Kafka client failed: {error.name()}: {error.str()}"
            raise ClientFatalError(message)
        else:
            log.warning("client.error", code=error.name(), reason=error.str())

    def _can_fall_back(self, error: ck.KafkaError) -> bool:
        return len(self._properties) > 1 and _is_unsupported(error)

    def _fall_back(self) -> None:
        self._refused = False
        del self._properties[self.protocol]
        self.protocol = next(iter(self._properties))
        log.warning("protocol.fallback", protocol=self.protocol)
        self._client.close()
        self._client = self._make()
        if self._listener is not None:
            self.subscribe(self._topics, self._listener)

    def pause(self, partitions: Sequence[Partition]) -> None:
        """See ``ports.Consumer``."""
        self._client.pause([ck.TopicPartition(p.topic, p.number) for p in partitions])

    def resume(self, partitions: Sequence[Partition]) -> None:
        """See ``ports.Consumer``."""
        self._client.resume([ck.TopicPartition(p.topic, p.number) for p in partitions])

    def commit(self, offsets: Mapping[Partition, int]) -> None:
        """See ``ports.Consumer``."""
        try:
            self._client.commit(offsets=_positions(offsets), asynchronous=True)
        except ck.KafkaException as error:
            if self._listener is not None:
                self._listener.committed(offsets, failure_of(error.args[0]))

    def commit_now(self, offsets: Mapping[Partition, int]) -> KafkaFailure | None:
        """See ``ports.Consumer``."""
        try:
            answered = self._client.commit(offsets=_positions(offsets), asynchronous=False) or []
        except ck.KafkaException as error:
            return failure_of(error.args[0])
        return next((failure_of(position.error) for position in answered if position.error), None)

    def close(self) -> None:
        """See ``ports.Consumer``."""
        self._client.close()
        self._guard.check()

    # -- callbacks of the client

    def _on_error(self, error: ck.KafkaError) -> None:
        if self._can_fall_back(error):
            self._refused = True
        else:
            _client_error(self._guard, error)

    def _on_assign(self, client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        if not positions:  # KIP-848 says so often
            return
        client.incremental_assign(positions)
        # The client keeps a partition paused over a revoke and a later assignment.
        client.resume(positions)
        self._tell("assigned", positions)

    def _on_revoke(self, _client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        self._tell("revoked", positions)

    def _on_lost(self, _client: ck.Consumer, positions: list[ck.TopicPartition]) -> None:
        self._tell("lost", positions)

    def _tell(self, what: str, positions: list[ck.TopicPartition]) -> None:
        if self._listener is not None and positions:
            partitions = [Partition(position.topic, position.partition) for position in positions]
            self._guard.call(getattr(self._listener, what), partitions)

    def _on_commit(self, error: ck.KafkaError | None, positions: list[ck.TopicPartition]) -> None:
        if self._listener is None:
            return
        offsets = {Partition(p.topic, p.partition): p.offset for p in positions}
        error = error or next((position.error for position in positions if position.error), None)
        self._guard.call(self._listener.committed, offsets, None if error is None else failure_of(error))


def _positions(offsets: Mapping[Partition, int]) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(p.topic, p.number, offset) for p, offset in offsets.items()]


class ConfluentProducer:
    """An idempotent producer."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._guard = _Guard()
        self._client = ck.Producer(_with_callbacks(properties, self._guard))
        self._confirmed: list[object] = []
        self._failed: list[tuple[object, KafkaFailure]] = []

    def produce(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, token: object) -> None:
        """See ``ports.Producer``."""
        report = functools.partial(self._report, token)
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

    def _report(self, token: object, error: ck.KafkaError | None, _message: ck.Message) -> None:
        if error is None:
            self._confirmed.append(token)
        elif error.fatal():
            self._guard.keep(ClientFatalError(f"the producer failed: {error.name()}: {error.str()}"))
        else:
            self._failed.append((token, failure_of(error)))

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
