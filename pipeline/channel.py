"""Kafka's side of sending exactly once: a transactional producer of one part. Made and used inside a Spark task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from pipeline.contact import meet
from pipeline.errors import BrokerError, JobError
from pipeline.ledger import PATIENCE, QUIET, Ledger
from pipeline.ranges import Ranges
from worker.core.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.transact import Row

_TRIES = 5  # of a chunk whose transaction had to be aborted
_PRODUCER = {
    **QUIET,
    "enable.idempotence": True,
    # As Kafka's Java clients do it, so that the requests of a key lie where their answers and others' requests do.
    "partitioner": "murmur2_random",
    # The topic's limit decides, not the client's.
    "message.max.bytes": 64 * 1024 * 1024,
    "linger.ms": 20,
    "transaction.timeout.ms": int(PATIENCE * 1000),
}


class KafkaChannel:
    """See ``pipeline.transact.Channel``. ``cumulative``: the ledger's record replaces the one before."""

    def __init__(self, properties: Mapping[str, Any], ledger: Ledger, part: int, *, cumulative: bool) -> None:
        self._ledger = ledger
        self._part = part
        self._cumulative = cumulative
        self._producer = fence(properties, ledger, part)
        # Only now: nobody else can commit for this part any more.
        self.sent = ledger.read_part(part)
        self._place = ledger.partition(self._producer, part)

    def send(self, rows: list[Row]) -> None:
        """See ``Channel``."""
        numbers = Ranges(row[1] for row in rows)
        sent = Ranges.union([self.sent, numbers])
        slot, noted = ("", sent) if self._cumulative else (str(rows[0][1]), numbers)
        for attempt in range(1, _TRIES + 1):
            failure = self._try(rows, self._ledger.key(self._part, slot), str(noted).encode(), diagnose=attempt > 1)
            if failure is None:
                self.sent = sent
                return
        raise BrokerError(f"part {self._part} cannot be sent: {failure}")

    def _try(self, rows: list[Row], key: bytes, value: bytes, *, diagnose: bool) -> str | None:
        """One transaction; returns why it was aborted, or None. ``diagnose`` asks for each record's own error."""
        refusals: list[str] = []

        def refused(error: ck.KafkaError | None, _message: ck.Message) -> None:
            if error is not None:
                refusals.append(error.str())

        produce = self._producer.produce
        try:
            _patiently(self._producer.begin_transaction)
            for _, _, topic, row_key, row_value, headers in rows:
                while True:
                    try:
                        if diagnose:
                            produce(topic, row_value, row_key, on_delivery=refused, headers=headers)
                        else:
                            produce(topic, row_value, row_key, headers=headers)
                        break
                    except BufferError:
                        self._producer.poll(0.1)
            produce(self._ledger.topic, value, key, partition=self._place)
            _patiently(self._producer.commit_transaction)
        except ck.KafkaException as error:
            _raise_fatal(error, self._part)
            self._abort()
            return min(refusals, default=error.args[0].str())
        return None

    def _abort(self) -> None:
        try:
            _patiently(self._producer.abort_transaction)
        except ck.KafkaException as error:  # nor could it be committed: the broker is away for good
            _raise_fatal(error, self._part)
            raise BrokerError(f"part {self._part} cannot be sent: {error.args[0].str()}") from error

    def close(self) -> None:
        """Free the client."""
        self._producer.close()


def fence(properties: Mapping[str, Any], ledger: Ledger, part: int) -> ck.Producer:
    """A producer of this part, ready to begin transactions. Whoever had one before cannot commit any more."""
    identity = f"pipeline/{ledger.name}/{part}"
    producer = ck.Producer({**properties, **_PRODUCER, "transactional.id": identity})
    meet(producer, ledger.topic)
    try:
        _patiently(producer.init_transactions)
    except ck.KafkaException as error:
        _raise_fatal(error, part)
        raise BrokerError(f"cannot begin to send part {part}: {error.args[0].str()}") from error
    return producer


def _patiently(call: Callable[..., Any]) -> None:
    """Call until the broker answers; what can be tried again is, for a while."""
    deadline = Deadline.after(PATIENCE, time.monotonic())
    arguments = () if call.__name__ == "begin_transaction" else (PATIENCE,)
    while True:
        try:
            call(*arguments)
        except ck.KafkaException as error:
            if not error.args[0].retriable() or deadline.passed(time.monotonic()):
                raise
            time.sleep(0.1)
        else:
            return


def _raise_fatal(error: ck.KafkaException, part: int) -> None:
    """Raise what no repetition mends; what only asks for an abort passes."""
    cause = error.args[0]
    if cause.code() in {ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH}:  # noqa: SLF001 - public in spite of its name
        raise JobError(f"part {part} was taken over: another submit of the same job is running") from error
    if cause.fatal():
        raise BrokerError(f"part {part} cannot be sent: {cause.str()}") from error
