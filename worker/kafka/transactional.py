"""The transactor over confluent-kafka. docs/decisions/0060 has the reasons and the measurements.

After some errors the call is repeated. After others the transaction is aborted, and nothing has happened. After all
others the outcome is unknown: a new producer with the same id ends the open transaction, and the group's positions show
how it ended.
"""

from __future__ import annotations

import contextlib
import functools
import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from worker.errors import ClientFatalError
from worker.kafka.clients import failure_of, topic_partitions, with_error_callback, without_offsets
from worker.kafka.ports import Ended, KafkaFailure, Position
from worker.kafka.repeated_calls import PAUSE_SECONDS, RepeatedCalls, discard, error_of, fail, warn
from worker.kafka.transaction_outcome import was_committed
from worker.kafka.transaction_properties import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.kafka.ports import Handshake, Transaction

DELAYED_SECONDS = 1.0  # a request that took longer may have been sent twice
GIVE_UP_SECONDS = 10.0  # this long after a transaction's time-out, its client is not asked to end it any more
CONNECT_SECONDS = 60.0  # for one client; after an outage some never find the brokers again (docs/decisions/0075)
FENCED_SECONDS = 600.0  # a second fencing within this time is fatal
_FENCED = {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"
_UNSENT = ck.KafkaError(ck.KafkaError._TIMED_OUT, "messages were not sent")  # noqa: SLF001 - a public constant
_UNDELIVERED = "_INCONSISTENT"  # the client's error when messages have failed for another reason


class ConfluentTransactor(RepeatedCalls):
    """See ``ports.Transactor``. ``checker`` are the properties of a consumer that reads the group's positions.

    Nothing else in this process may commit the partitions of a transaction while it is under way. Any thread may call
    ``close``; a ``commit`` under way in another thread then raises ``ClientFatalError`` within seconds.
    """

    def __init__(self, properties: Mapping[str, Any], *, checker: Mapping[str, Any]) -> None:
        super().__init__()
        self._lifetime = int(properties[TIMEOUT]) / 1000
        self._properties = with_error_callback(properties, self._on_error)
        self._checker = with_error_callback(checker, warn)
        self._client: ck.Producer | None = None
        self._refusal: KafkaFailure | None = None  # why one of the messages cannot be written
        self._fenced_at: float | None = None

    def open(self) -> None:
        """See ``ports.Transactor``."""
        if self._client is None:
            self._connect()

    def commit(self, transaction: Transaction) -> Ended:
        """See ``ports.Transactor``."""
        self.called_at = time.monotonic()
        client = self._client or self._connect()
        client.poll(0)  # errors from the idle time do not concern this transaction
        began, self._disturbed, self._refusal = time.monotonic(), False, None
        error = self._fill(client, transaction)
        undone = error is not None and not error.fatal()
        if error is None and not self._is_held(transaction):
            if self._abort(client):
                self._renew_if_disturbed()
            else:
                self._drop()  # the next client ends the open transaction, whose commit was not requested
            return Ended(committed=False, superseded=True)
        if error is None:
            error = self._request(client.commit_transaction)
            if error is None:
                self._renew_if_disturbed()
                return Ended(committed=True)
            undone = error.txn_requires_abort()
        if undone and self._abort(client):
            self._renew_if_disturbed()
            return Ended(committed=False, failure=self._reason(error))
        self._drop()
        if time.monotonic() - began < self._lifetime:
            self._tolerate_once(error)  # the coordinator's time-out looks the same, but it is too early for that
        return self._resolve(transaction, failure_of(error))

    def find_out(self, transaction: Transaction) -> Ended:
        """See ``ports.Transactor``."""
        return self._resolve(transaction, KafkaFailure("_TIMED_OUT", "the client did not come back from a call"))

    def close(self) -> None:
        """See ``ports.Transactor``."""
        self._closed.set()
        self._drop()

    # -- one transaction

    def _fill(self, client: ck.Producer, transaction: Transaction) -> ck.KafkaError | None:
        """Put everything into the transaction. Return why that failed."""
        try:
            client.begin_transaction()
        except ck.KafkaException as raised:
            return error_of(raised)
        refused = self._produce(client, transaction)
        # Call this even after a failure: if the transaction had already failed, only this call tells why.
        send = functools.partial(client.send_offsets_to_transaction, *self._offsets(transaction))
        return self._request(send) or refused

    def _offsets(self, transaction: Transaction) -> tuple[list[ck.TopicPartition], object]:
        """Return the positions of the transaction, or its mark, and the group that they belong to."""
        handshake = transaction.handshake
        if handshake is None:
            return topic_partitions(transaction.positions), transaction.member
        consumer = ck.Consumer({**self._checker, "group.id": handshake.group})
        try:
            return topic_partitions({handshake.partition: handshake.mark}), consumer.consumer_group_metadata()
        finally:
            consumer.close()

    def _is_held(self, transaction: Transaction) -> bool:
        """Return whether the group's metadata still name this process. Called while the task's mark is pending.

        The committed metadata is enough. Waiting until nothing is pending would take until others' transactions end.
        """
        handshake = transaction.handshake
        if handshake is None:
            return True
        latest = {**self._checker, "isolation.level": "read_uncommitted"}
        (found,) = self._committed(latest, [ck.TopicPartition(*handshake.partition)])
        return handshake.is_held(_position(found))

    def _produce(self, client: ck.Producer, transaction: Transaction) -> ck.KafkaError | None:
        produce, report = client.produce, self._on_refusal
        limit = time.monotonic() + self._lifetime + GIVE_UP_SECONDS
        for topic, key, value, headers in transaction.messages:
            while True:
                try:
                    if headers:
                        produce(topic, value, key, on_delivery=report, headers=list(headers))
                    else:
                        produce(topic, value, key, -1, report)
                except BufferError:  # the client's queue is full, so let it deliver
                    if time.monotonic() > limit:
                        return _UNSENT
                    self._begin_call()
                    client.poll(PAUSE_SECONDS)
                except ck.KafkaException as raised:
                    self._refused(error_of(raised), topic)
                    return error_of(raised)
                else:
                    break
            while transaction.one_by_one and client.flush(PAUSE_SECONDS):
                if time.monotonic() > limit:
                    return _UNSENT
                self._begin_call()
        return None

    def _request(self, call: Callable[[float], object]) -> ck.KafkaError | None:
        """Send offsets, commit or abort. Record whether the request for it may have been sent more than once."""
        started = time.monotonic()
        error = self._repeat(call, self._lifetime + GIVE_UP_SECONDS)
        self._disturbed = self._disturbed or time.monotonic() - started > DELAYED_SECONDS
        return error

    def _abort(self, client: ck.Producer) -> bool:
        """Abort. Return whether it is certain that nothing of the transaction remains."""
        error = self._request(client.abort_transaction)
        with contextlib.suppress(ck.KafkaException):
            client.poll(0)  # the errors of the messages
        return error is None

    def _reason(self, error: ck.KafkaError) -> KafkaFailure:
        """Return the error of an aborted transaction that the caller can do something about."""
        refusal = self._refusal
        if refusal is not None and (refusal.code == _TOO_LARGE or error.name() == _UNDELIVERED):
            return refusal
        return failure_of(error)

    def _resolve(self, transaction: Transaction, failure: KafkaFailure) -> Ended:
        """Determine an unknown outcome. A new producer ends the transaction; then the group's positions show it."""
        self._connect()
        if transaction.handshake is not None:
            return self._resolve_mark(transaction.handshake, failure)
        partitions = list(transaction.positions)
        found = self._committed(self._checker, without_offsets(partitions))
        positions = (Position(place.offset, place.metadata or "") for place in found)
        committed = was_committed(transaction.positions, dict(zip(partitions, positions, strict=True)))
        if committed is None and transaction.messages:
            raise ClientFatalError(
                f"another process has committed these partitions after a failed transaction: {failure}"
            )
        return Ended(bool(committed), None if committed else failure)

    def _resolve_mark(self, handshake: Handshake, failure: KafkaFailure) -> Ended:
        """Do the same for the answer to a detached task, whose mark shows it."""
        reader = {**self._checker, "group.id": handshake.group}
        (found,) = self._committed(reader, [ck.TopicPartition(*handshake.partition)])
        committed = _position(found) == handshake.mark
        return Ended(committed, None if committed else failure)

    # -- the client's life

    def _connect(self) -> ck.Producer:
        """Return a new producer, however long that takes. It ends what the last one with its id left open, and fences
        any other.
        """
        while True:
            self._check_open()
            client = ck.Producer(self._properties)
            error = self._repeat(client.init_transactions, CONNECT_SECONDS)
            if error is None:
                self._client = client
                return client
            discard(client)
            if error.retriable():
                continue  # with another client, because this one may have lost all brokers
            if error.name() not in _FENCED:
                fail(error)
            self._tolerate_once(error)  # two with the same transactional id began at the same time

    def _tolerate_once(self, error: ck.KafkaError) -> None:
        """Accept one fencing but not the next, because two live producers would fence each other without end."""
        now, before = time.monotonic(), self._fenced_at
        self._fenced_at = now
        if before is not None and now - before < FENCED_SECONDS:
            fail(error)
        warn(error)

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            discard(client)

    def _renew_if_disturbed(self) -> None:
        """Get a new epoch after a disturbance, or a delayed request of this transaction could change the next one."""
        if self._disturbed:  # see KIP-890
            self._drop()

    # -- callbacks of the client

    def _on_error(self, error: ck.KafkaError) -> None:
        self._disturbed = True
        warn(error)

    def _on_refusal(self, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self._refused(error, message.topic() or "")

    def _refused(self, error: ck.KafkaError, topic: str) -> None:
        if self._refusal is None or error.name() == _TOO_LARGE:
            self._refusal = failure_of(error)._replace(topic=topic)


def _position(found: ck.TopicPartition) -> Position | None:
    return Position(found.offset, found.metadata or "") if found.offset >= 0 else None
