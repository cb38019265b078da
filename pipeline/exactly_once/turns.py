"""The right to send: if two calls send the same rows, the later one has it.

Spark retries a task that was fenced, and the retried task would then fence the later call. So each call writes an id
into the progress log before it fences the earlier ones, and each task checks whether its id is still the newest.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import confluent_kafka as ck

from pipeline.errors import BrokerError, JobError
from pipeline.exactly_once.client import wait_for_metadata
from pipeline.exactly_once.progress_log import QUIET, TIMEOUT

if TYPE_CHECKING:
    from pipeline.exactly_once.progress_log import ProgressLog

_PART = 0  # the id stands in the partition of this part


def take_turn(log: ProgressLog) -> str:
    """Record a new call, which alone may send from now on. Return its id."""
    turn = uuid.uuid4().hex
    # It may be written twice. Should a later call's id come between the two, that call ends with an error.
    write_record(log, _key(log), turn.encode(), idempotent=False)
    return turn


def check_turn(log: ProgressLog, turn: str) -> None:
    """Raise JobError if a later call sends the same rows."""
    if log.latest(_key(log), _PART) != turn.encode():
        raise JobError(f"{log.name} was taken over: another submit or replay of the same job is running")


def _key(log: ProgressLog) -> bytes:
    return f"{log.name}/turn".encode()


def write_record(log: ProgressLog, key: bytes, value: bytes | None, *, idempotent: bool = True) -> None:
    """Write a confirmed record outside of transactions into the first partition of the log.

    If not ``idempotent``, it may be written twice. The client of an idempotent producer waits half a second.
    """
    failures: list[str] = []

    def delivered(error: ck.KafkaError | None, _message: ck.Message) -> None:
        if error is not None:
            failures.append(error.str())

    producer = ck.Producer({**log.properties, **QUIET, "acks": "all", "enable.idempotence": idempotent})
    try:
        wait_for_metadata(producer, log.topic)
        producer.produce(log.topic, value, key, partition=_PART, on_delivery=delivered)
        if producer.flush(TIMEOUT):
            failures.append("the brokers do not answer")
    finally:
        producer.close()
    if failures:
        raise BrokerError(f"{log.topic} cannot be written: {failures[0]}")
