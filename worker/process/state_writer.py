"""Writes to the state topic: records of long tasks, and tombstones of cancel requests. Used on the poll thread."""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.state.records import cancel_key, encode_state, state_key

if TYPE_CHECKING:
    from worker.core.long_task import LongTask
    from worker.core.task_state import Origin
    from worker.kafka.ports import KafkaFailure
    from worker.metrics import Metrics
    from worker.state.port import StateTopic
    from worker.state.table import StateTable

CANCEL_ECHO_SECONDS = 10.0  # until the reader has seen the tombstone of a cancel request
CANCEL_RETRY_SECONDS = 1.0  # after a tombstone of a cancel request was not delivered

log = structlog.get_logger("states")


class _Record(NamedTuple):
    """A record that is being written: of a long task, or the tombstone of a cancel request (``task`` is None)."""

    origin: Origin
    task: LongTask | None
    is_tombstone: bool


class StateWriter:
    """Write at most one record of a request at a time. Entries that this process has removed leave ``table``."""

    def __init__(self, topic: StateTopic, table: StateTable, metrics: Metrics) -> None:
        self._topic = topic
        self._table = table
        self._metrics = metrics
        self._removals: dict[Origin, float] = {}  # tombstones of cancel requests -> when to write them again

    def write(self, task: LongTask, now: float) -> None:
        """Write the current record of a long task, or its tombstone."""
        origin, state = task.origin, task.take(now, time.time_ns())
        value = None if state is None else encode_state(state)
        self._topic.write(origin, state_key(origin), value, _Record(origin, task, is_tombstone=state is None))

    def remove_cancel_request(self, origin: Origin, now: float) -> None:
        """Remove a cancel request that has reached its request, unless its removal is under way."""
        if origin in self._table.cancels and self._removals.get(origin, 0.0) <= now:
            self._removals[origin] = math.inf
            self._topic.write(origin, cancel_key(origin), None, _Record(origin, None, is_tombstone=True))

    def cancel_request_removed(self, origin: Origin) -> None:
        """Record that the reader has seen the tombstone. The request may be cancelled again."""
        self._removals.pop(origin, None)

    def serve(self, now: float) -> None:
        """Handle the deliveries of records."""
        confirmed, failed = self._topic.written()
        for token in confirmed:
            self._confirmed(_record(token), now)
        for token, failure in failed:
            self._failed(_record(token), failure, now)

    def _confirmed(self, record: _Record, now: float) -> None:
        if record.task is None:
            if record.origin in self._removals:
                self._removals[record.origin] = now + CANCEL_ECHO_SECONDS
            return
        record.task.confirmed(removed=record.is_tombstone)
        if record.is_tombstone:
            self._table.states.pop(record.origin, None)

    def _failed(self, record: _Record, failure: KafkaFailure, now: float) -> None:
        self._metrics.add("state_failures_total", label=failure.code)
        if record.task is None:
            self._removals[record.origin] = now + CANCEL_RETRY_SECONDS
        elif record.task.failed(now, too_large=failure.code == "MSG_SIZE_TOO_LARGE"):
            log.warning("checkpoint.refused", origin=str(record.origin), reason=failure.message)

    def close(self) -> None:
        """Give up everything that is not written yet."""
        self._topic.close()


def _record(token: object) -> _Record:
    assert isinstance(token, _Record)
    return token
