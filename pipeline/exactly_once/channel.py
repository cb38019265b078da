"""The Kafka side of exactly-once sending: a transactional producer for one part, made and used in a Spark task."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck

from pipeline.errors import BrokerError, JobError
from pipeline.exactly_once.client import wait_for_metadata
from pipeline.exactly_once.progress_log import QUIET, TIMEOUT, ProgressLog
from pipeline.exactly_once.ranges import Ranges
from worker.core.deadline import Deadline
from worker.kafka.properties import RELIABLE_PRODUCER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pipeline.exactly_once.chunks import Row

_TRIES = 5  # attempts to send a chunk whose transaction had to be aborted
_PURGED = {ck.KafkaError._PURGE_QUEUE, ck.KafkaError._PURGE_INFLIGHT}  # noqa: SLF001 - public in spite of their names
_PRODUCER = {
    **QUIET,
    **RELIABLE_PRODUCER,
    "linger.ms": 20,
    "transaction.timeout.ms": int(TIMEOUT * 1000),
}


class KafkaChannel:
    """A ``pipeline.exactly_once.chunks.Channel``. If ``cumulative``, each record of the log replaces the last one."""

    def __init__(
        self, properties: Mapping[str, Any], progress_log: ProgressLog, part: int, *, cumulative: bool
    ) -> None:
        self._progress_log = progress_log
        self._part = part
        self._cumulative = cumulative
        self._producer = fence(properties, progress_log, part)
        # Read only now, when no other producer can commit for this part any more.
        self.sent = progress_log.read_part(part)
        self._place = progress_log.partition(self._producer, part)

    def send(self, rows: list[Row]) -> None:
        """Commit the rows. See ``Channel``."""
        numbers = Ranges(row[1] for row in rows)
        sent = Ranges.union([self.sent, numbers])
        slot, noted = ("", sent) if self._cumulative else (str(rows[0][1]), numbers)
        refusals: list[str] = []

        def refused(error: ck.KafkaError | None, _message: ck.Message) -> None:
            if error is not None and error.code() not in _PURGED:
                refusals.append(error.str())

        for attempt in range(1, _TRIES + 1):
            # Reports of single records take time, and most transactions succeed at once.
            of_row = {"on_delivery": refused} if attempt > 1 else {}
            failure = self._try(rows, self._progress_log.key(self._part, slot), str(noted).encode(), of_row)
            if failure is None:
                self.sent = sent
                return
        # The first: after several refused batches, the client refuses records itself, because it skipped sequences.
        raise BrokerError(f"part {self._part} cannot be sent: {refusals[0] if refusals else failure}")

    def _try(self, rows: list[Row], key: bytes, value: bytes, of_row: Mapping[str, Any]) -> str | None:
        """Try one transaction. Return why it was aborted, or None. Produce each row with the options ``of_row``."""
        try:
            _retry_transient(self._producer.begin_transaction)
            for _, _, topic, row_key, row_value, headers in rows:
                self._produce(topic, row_value, row_key, headers=headers, **of_row)
            self._produce(self._progress_log.topic, value, key, partition=self._place)
            _retry_transient(self._producer.commit_transaction)
        except ck.KafkaException as error:
            _raise_fatal(error, self._part)
            self._abort()
            return str(error.args[0].str())
        return None

    def _produce(self, *arguments: Any, **options: Any) -> None:
        """Produce as the client does. Wait while its queue is full."""
        while True:
            try:
                self._producer.produce(*arguments, **options)
            except BufferError:
                self._producer.poll(0.1)
            else:
                return

    def _abort(self) -> None:
        try:
            _retry_transient(self._producer.abort_transaction)
        except ck.KafkaException as error:  # the abort failed, too: the broker does not come back
            _raise_fatal(error, self._part)
            raise BrokerError(f"part {self._part} cannot be sent: {error.args[0].str()}") from error

    def close(self) -> None:
        """Close the client."""
        self._producer.close()


def fence(properties: Mapping[str, Any], progress_log: ProgressLog, part: int) -> ck.Producer:
    """Return a producer for this part, ready to begin transactions. An earlier producer can no longer commit."""
    identity = f"pipeline/{progress_log.name}/{part}"
    producer = ck.Producer({**properties, **_PRODUCER, "transactional.id": identity})
    wait_for_metadata(producer, progress_log.topic)
    try:
        _retry_transient(producer.init_transactions)
    except ck.KafkaException as error:
        _raise_fatal(error, part)
        raise BrokerError(f"cannot begin to send part {part}: {error.args[0].str()}") from error
    return producer


def _retry_transient(call: Callable[..., Any]) -> None:
    """Call until the broker answers. Repeat transient errors for a limited time."""
    deadline = Deadline.after(TIMEOUT, time.monotonic())
    arguments = () if call.__name__ == "begin_transaction" else (TIMEOUT,)
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
    """Raise errors that no repetition can fix. Return if the error only requires an abort."""
    cause = error.args[0]
    if cause.code() in {ck.KafkaError._FENCED, ck.KafkaError.PRODUCER_FENCED, ck.KafkaError.INVALID_PRODUCER_EPOCH}:  # noqa: SLF001 - public in spite of its name
        raise JobError(f"part {part} was taken over: another submit of the same job is running") from error
    if cause.fatal():
        raise BrokerError(f"part {part} cannot be sent: {cause.str()}") from error
