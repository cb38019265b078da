"""Answers on their way: encode, produce, wait for the confirmed delivery, settle."""

from __future__ import annotations

import functools
import heapq
import itertools
import math
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from worker.core.model import Failure, Outcome
from worker.process.letters import DeadLetter, dead_letter, size_of, without_value

if TYPE_CHECKING:
    from worker.codec import AnswerEncoder
    from worker.core.lane import Lane
    from worker.kafka.ports import KafkaFailure, Producer
    from worker.metrics import Metrics
    from worker.process.config import ProcessConfig
    from worker.process.tasklog import TaskLog

AGAIN_SECONDS = 1.0  # after a failed delivery
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"

log = structlog.get_logger("answers")


class Answers:
    """Takes outcomes that are to be answered and calls ``settled(lane, offset)`` once the answer is confirmed.

    A delivery that failed for any reason but its size is produced again, for ever: a request is never left without
    its answer, and "failed" may mean "delivered", so readers know an answer by its origin. Poll thread.
    """

    def __init__(
        self,
        config: ProcessConfig,
        producer: Producer,
        encoder: AnswerEncoder,
        settled: Callable[[Lane, int], None],
        metrics: Metrics,
        tasklog: TaskLog,
    ) -> None:
        self.outstanding = 0
        self._config = config
        self._producer = producer
        self._encoder = encoder
        self._settled = settled
        self._metrics = metrics
        self._tasklog = tasklog
        self._again: list[tuple[float, int, Callable[[], None]]] = []
        self._order = itertools.count()

    def ok(self, outcome: Outcome) -> None:
        """Answer with the handler's result; one that no record can hold goes to the dead letters."""
        value = self._encoder.ok(outcome)
        key = outcome.task.record.key
        if size_of(key, value) > self._config.max_answer_bytes:
            self.bury(outcome, self._oversized(len(value)))
            return
        self._take(outcome)
        self._produce_answer(outcome, "OK", key, value)

    def bury(self, outcome: Outcome, failure: Failure) -> None:
        """Dead letter first; its answer when that is confirmed."""
        self._take(outcome)
        self._bury(outcome, failure)

    def repeat(self, now: float) -> None:
        """Produce again what is due."""
        while self._again and self._again[0][0] <= now:
            heapq.heappop(self._again)[2]()

    def next_repeat(self) -> float:
        """When the next one is due (infinity: none)."""
        return self._again[0][0] if self._again else math.inf

    def _oversized(self, size: int) -> Failure:
        limit = self._config.max_answer_bytes
        return Failure("OversizedResult", f"the answer has {size} bytes; {self._config.ack_topic} takes {limit}")

    def _take(self, outcome: Outcome) -> None:
        self.outstanding += 1
        outcome.task.lane.unconfirmed += 1

    def _bury(self, outcome: Outcome, failure: Failure) -> None:
        outcome.failure = failure
        outcome.result = b""
        letter = dead_letter(outcome.task, failure, self._config.max_dead_letter_bytes)
        self._produce_letter(outcome, failure, letter)

    def _produce_letter(self, outcome: Outcome, failure: Failure, letter: DeadLetter) -> None:
        delivered = functools.partial(self._letter_delivered, outcome, failure, letter)
        self._producer.produce(self._config.dead_letter_topic, letter.key, letter.value, letter.headers, delivered)

    def _letter_delivered(
        self, outcome: Outcome, failure: Failure, letter: DeadLetter, trouble: KafkaFailure | None
    ) -> None:
        if trouble is None:
            self._metrics.add("produced_total", label="dead_letter")
            value = self._encoder.dead_lettered(outcome, failure)
            self._produce_answer(outcome, "DEAD_LETTERED", outcome.task.record.key, value)
        elif trouble.code == _TOO_LARGE and letter.value is not None:
            self._produce_letter(outcome, failure, without_value(letter))
        else:
            self._later(trouble, functools.partial(self._produce_letter, outcome, failure, letter))

    def _produce_answer(self, outcome: Outcome, name: str, key: bytes | None, value: bytes) -> None:
        delivered = functools.partial(self._answer_delivered, outcome, name, key, value)
        self._producer.produce(self._config.ack_topic, key, value, (), delivered)

    def _answer_delivered(
        self, outcome: Outcome, name: str, key: bytes | None, value: bytes, trouble: KafkaFailure | None
    ) -> None:
        if trouble is None:
            self._confirmed(outcome, name)
        elif trouble.code != _TOO_LARGE:
            self._later(trouble, functools.partial(self._produce_answer, outcome, name, key, value))
        elif name == "OK":  # the topic takes less than we were told at the start
            self._bury(outcome, self._oversized(len(value)))
        else:  # not even the bare bad news fits beside this key
            bare = self._encoder.dead_lettered(outcome, Failure("OversizedAnswer", ""))
            again = functools.partial(self._produce_answer, outcome, name, None, bare)
            self._later(trouble, again) if key is None else again()

    def _later(self, trouble: KafkaFailure, again: Callable[[], None]) -> None:
        self._metrics.add("delivery_failures_total", label=trouble.code)
        log.warning("delivery.failed", code=trouble.code, reason=trouble.message)
        heapq.heappush(self._again, (time.monotonic() + AGAIN_SECONDS, next(self._order), again))

    def _confirmed(self, outcome: Outcome, name: str) -> None:
        task = outcome.task
        self.outstanding -= 1
        task.lane.unconfirmed -= 1
        settle = max(0.0, (time.time_ns() - outcome.finished_ns) / 1e9) if outcome.finished_ns else 0.0
        self._metrics.add("produced_total", label="answer")
        self._metrics.add("tasks_total", label=name)
        self._metrics.observe("settle_seconds", settle)
        self._settled(task.lane, task.record.offset)
        self._tasklog.finished(outcome, name, settle)
