"""The transactor over confluent-kafka. Why it is as it is, and what was measured: docs/decisions/0060.

The errors of the client come in three kinds: call again; abort, and nothing has happened; and those after which nobody
knows. After one of the last kind a new producer of the same name ends whatever is open, and the positions of the group
tell how.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import threading
import time
from typing import TYPE_CHECKING, Any, NoReturn

import confluent_kafka as ck
import structlog

from worker.errors import ClientFatalError
from worker.kafka.clients import failure_of
from worker.kafka.ports import Ended, KafkaFailure, Position
from worker.kafka.transaction_properties import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.model import Partition
    from worker.kafka.ports import Message, Transaction

log = structlog.get_logger("kafka")

CALL_SECONDS = 3.0  # the longest that one call waits; the loop around it goes on
PAUSE_SECONDS = 0.1  # between two calls, of which the first may have failed at once
DELAYED_SECONDS = 1.0  # an end of a transaction that took longer may have been asked for twice
GIVE_UP_SECONDS = 10.0  # after the time-out of a transaction: its client is not asked to end it any more
GRUDGE_SECONDS = 600.0  # how long it is remembered that somebody has put an end to our producer
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"
_UNDELIVERED = "_INCONSISTENT"  # what the client says when messages have failed for reasons of their own


class ConfluentTransactor:
    """See ``ports.Transactor``. ``checker`` are the properties of a consumer that asks where the group stands.

    Nobody else in this process may commit the partitions of a transaction while it is under way. ``close`` may be
    called from any thread; a ``commit`` under way in another one then raises ``ClientFatalError`` within seconds.
    """

    def __init__(self, properties: Mapping[str, Any], *, checker: Mapping[str, Any]) -> None:
        self._lifetime = int(properties[TIMEOUT]) / 1000
        self._properties = _with_callbacks(properties, self._on_error)
        self._checker = _with_callbacks(checker, _warn)
        self._client: ck.Producer | None = None
        self.called_at = time.monotonic()
        self._closed = threading.Event()
        self._disturbed = False  # something has gone wrong, so that a request may still be on its way
        self._refusal: ck.KafkaError | None = None  # what is wrong with one of the messages
        self._fenced_at: float | None = None

    def open(self) -> None:
        """See ``ports.Transactor``."""
        if self._client is None:
            self._connect()

    def commit(self, transaction: Transaction) -> Ended:
        """See ``ports.Transactor``."""
        self.called_at = time.monotonic()
        client = self._client or self._connect()
        client.poll(0)  # errors of the idle time are no concern of this transaction
        began, self._disturbed, self._refusal = time.monotonic(), False, None
        error = self._fill(client, transaction)
        undone = error is not None and not error.fatal()
        if error is None:
            error = self._end(client.commit_transaction)
            if error is None:
                self._renew_if_disturbed()
                return Ended(committed=True)
            undone = error.txn_requires_abort()
        if undone and self._abort(client):
            self._renew_if_disturbed()
            return Ended(committed=False, failure=self._reason(error))
        return self._find_out(transaction, error, time.monotonic() - began)

    def close(self) -> None:
        """See ``ports.Transactor``."""
        self._closed.set()
        self._drop()

    # -- one transaction

    def _fill(self, client: ck.Producer, transaction: Transaction) -> ck.KafkaError | None:
        """Put everything into the transaction; returns why not."""
        try:
            client.begin_transaction()
        except ck.KafkaException as raised:
            return _error_of(raised)
        refused = self._produce(client, transaction.messages)
        # Also if that failed: only this tells why, when the transaction had failed already.
        send = functools.partial(
            client.send_offsets_to_transaction, _to_client(transaction.positions), transaction.member
        )
        return self._persist(send, self._lifetime + GIVE_UP_SECONDS) or refused

    def _produce(self, client: ck.Producer, messages: Sequence[Message]) -> ck.KafkaError | None:
        produce, report = client.produce, self._on_refusal
        for topic, key, value, headers in messages:
            while True:
                try:
                    if headers:
                        produce(topic, value, key, on_delivery=report, headers=list(headers))
                    else:
                        produce(topic, value, key, -1, report)
                except BufferError:  # the client's queue is full: let it deliver
                    self._check_open()
                    self.called_at = time.monotonic()
                    client.poll(PAUSE_SECONDS)
                except ck.KafkaException as raised:
                    self._on_refusal(_error_of(raised), None)
                    return _error_of(raised)
                else:
                    break
        return None

    def _end(self, call: Callable[[float], object]) -> ck.KafkaError | None:
        """Commit or abort. Notes whether the request for it may have been sent more than once."""
        started = time.monotonic()
        error = self._persist(call, self._lifetime + GIVE_UP_SECONDS)
        self._disturbed = self._disturbed or time.monotonic() - started > DELAYED_SECONDS
        return error

    def _abort(self, client: ck.Producer) -> bool:
        """Whether it is certain that nothing of the transaction remains."""
        error = self._end(client.abort_transaction)
        with contextlib.suppress(ck.KafkaException):
            client.poll(0)  # the messages' own errors
        return error is None

    def _persist(self, call: Callable[[float], object], limit: float) -> ck.KafkaError | None:
        """Call until it is done, or has failed for good, or for ``limit`` seconds: the broker may be away.

        When a transaction's time is up nothing is lost with its client, and the client may be what has failed: one was
        seen that did not find back to its coordinator.
        """
        started = time.monotonic()
        while True:
            self._check_open()
            self.called_at = time.monotonic()
            try:
                call(CALL_SECONDS)
            except ck.KafkaException as raised:
                error = _error_of(raised)
                if not error.retriable():
                    return error
                self._disturbed = True
                if time.monotonic() - started > limit:
                    return error
                self._closed.wait(PAUSE_SECONDS)
            else:
                return None

    def _reason(self, error: ck.KafkaError) -> KafkaFailure:
        """Of all that is said of an aborted transaction: what the caller can do something about."""
        refusal = self._refusal
        if refusal is not None and (refusal.name() == _TOO_LARGE or error.name() == _UNDELIVERED):
            return failure_of(refusal)
        return failure_of(error)

    # -- the client's life

    def _connect(self) -> ck.Producer:
        """A new producer. It ends what the last one of its name has left open, and shuts out any other."""
        while True:
            self._check_open()
            client = ck.Producer(self._properties)
            error = self._persist(client.init_transactions, math.inf)
            if error is None:
                self._client = client
                return client
            _discard(client)
            if not _is_fenced(error):
                _fail(error)
            self._suspect(error)  # two of the same name began at the same time

    def _drop(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            _discard(client)

    def _renew_if_disturbed(self) -> None:
        """A request to end this transaction that is still on its way would end the next one (KIP-890).

        A new producer has a new epoch, which such a request does not.
        """
        if self._disturbed:
            self._drop()

    # -- when nobody knows

    def _find_out(self, transaction: Transaction, error: ck.KafkaError, seconds: float) -> Ended:
        """How a transaction ended whose producer is of no more use."""
        self._drop()
        if seconds < self._lifetime:
            self._suspect(error)  # the coordinator's time-out looks the same, but cannot have been that
        return self._look(transaction, failure_of(error))

    def find_out(self, transaction: Transaction) -> Ended:
        """See ``ports.Transactor``."""
        return self._look(transaction, KafkaFailure("_TIMED_OUT", "the client did not come back from a call"))

    def _look(self, transaction: Transaction, failure: KafkaFailure) -> Ended:
        """A new producer ends whatever is open; then the group's positions tell how."""
        self._connect()
        found = self._where_the_group_stands(list(transaction.positions))
        committed = was_committed(transaction.positions, found)
        if committed is None:
            raise ClientFatalError(f"others have gone on where a transaction failed: {failure}")
        return Ended(committed, None if committed else failure)

    def _suspect(self, error: ck.KafkaError) -> None:
        """Two live producers of one name would shut each other out in turns for ever: put up with it once only."""
        now, before = time.monotonic(), self._fenced_at
        self._fenced_at = now
        if before is not None and now - before < GRUDGE_SECONDS:
            _fail(error)
        log.warning("client.error", code=error.name(), reason=error.str())

    def _where_the_group_stands(self, partitions: Sequence[Partition]) -> dict[Partition, Position]:
        asked = [ck.TopicPartition(partition.topic, partition.number) for partition in partitions]
        if not asked:
            return {}
        consumer = ck.Consumer(self._checker)
        answered: list[ck.TopicPartition] = []

        def ask(timeout: float) -> None:
            answered[:] = consumer.committed(asked, timeout)

        try:
            self._ask_for_ever(ask, answered)
        finally:
            consumer.close()
        return dict(zip(partitions, (Position(p.offset, p.metadata or "") for p in answered), strict=True))

    def _ask_for_ever(self, ask: Callable[[float], None], answered: Sequence[ck.TopicPartition]) -> None:
        """A result of hours may depend on the answer, and the broker will be back."""
        said: set[str] = set()
        while True:
            self._check_open()
            self.called_at = time.monotonic()
            try:
                ask(CALL_SECONDS)
                error = next((partition.error for partition in answered if partition.error), None)
            except ck.KafkaException as raised:
                error = _error_of(raised)
            if error is None:
                return
            if "AUTHORIZATION" in error.name():
                _fail(error)
            if error.name() not in said:
                said.add(error.name())
                _warn(error)
            self._closed.wait(PAUSE_SECONDS)

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ClientFatalError("closed while a transaction was under way")

    # -- callbacks of the client

    def _on_error(self, error: ck.KafkaError) -> None:
        self._disturbed = True
        _warn(error)

    def _on_refusal(self, error: ck.KafkaError | None, _message: ck.Message | None) -> None:
        if error is not None and (self._refusal is None or error.name() == _TOO_LARGE):
            self._refusal = error


def was_committed(ours: Mapping[Partition, Position], found: Mapping[Partition, Position]) -> bool | None:
    """Whether a transaction with our positions was committed, by where the group stands after its end.

    One position that is exactly ours is proof for all, since its notes are in no other transaction. One that is not
    beyond ours is proof of the contrary: whoever went on from ours under a later lease leaves nothing of it to us, and
    the leases are asked before anything is tried again. None: others have gone on everywhere.
    """
    if any(found[partition] == position for partition, position in ours.items()):
        return True
    if any(found[partition].offset <= position.offset for partition, position in ours.items()):
        return False
    return None


def _with_callbacks(properties: Mapping[str, Any], on_error: Callable[[ck.KafkaError], None]) -> dict[str, Any]:
    return {**properties, "error_cb": on_error, "logger": logging.getLogger("librdkafka")}


def _warn(error: ck.KafkaError) -> None:
    """For information: what is fatal comes back from the call that it concerns."""
    log.warning("client.error", code=error.name(), reason=error.str())


def _to_client(positions: Mapping[Partition, Position]) -> list[ck.TopicPartition]:
    return [ck.TopicPartition(p.topic, p.number, offset, notes) for p, (offset, notes) in positions.items()]


def _discard(client: ck.Producer) -> None:
    """Never ``close()``: with a transaction open and the broker away it does not return."""
    client.purge(blocking=False)


def _is_fenced(error: ck.KafkaError) -> bool:
    return error.name() in {"_FENCED", "PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}


def _error_of(raised: ck.KafkaException) -> ck.KafkaError:
    error: ck.KafkaError = raised.args[0]
    return error


def _fail(error: ck.KafkaError) -> NoReturn:
    raise ClientFatalError(f"the transactional producer failed: {error.name()}: {error.str()}")
