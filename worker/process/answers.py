"""Answers on their way: encode, produce, wait for the confirmed delivery, settle."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from typing import TYPE_CHECKING, NamedTuple, cast

import structlog

from worker.core.model import Failure, Outcome
from worker.process.letters import DeadLetter, dead_letter, reduced, size_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.codec import AnswerEncoder
    from worker.core.lane import Lane
    from worker.kafka.ports import KafkaFailure, Producer
    from worker.metrics import Metrics
    from worker.process.config import ProcessConfig
    from worker.process.tasklog import TaskLog

AGAIN_SECONDS = 1.0  # after a failed delivery
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"

log = structlog.get_logger("answers")


class _Letter(NamedTuple):
    """A dead letter under way; its answer follows when it is confirmed."""

    outcome: Outcome
    failure: Failure
    letter: DeadLetter


class _BadNews(NamedTuple):
    """The answer to a request that went to the dead letters, under way."""

    outcome: Outcome
    failure: Failure
    key: bytes | None


# What is under way, and the token it is produced with. An Outcome stands for its own good answer.
_Sending = Outcome | _Letter | _BadNews


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
        self.answered = 0  # requests whose answer was confirmed
        self.outstanding = 0  # requests whose answer is under way
        self.outstanding_bytes = 0  # what they hold in memory
        self._config = config
        self._ack_topic, self._max_answer_bytes = config.ack_topic, config.max_answer_bytes
        self._producer = producer
        self._encoder = encoder
        self._settled = settled
        self._metrics = metrics
        self._tasklog = tasklog
        self._again: list[tuple[float, int, _Sending]] = []
        self._order = itertools.count()

    def ok(self, outcome: Outcome) -> None:
        """Answer with the handler's result; one that no record can hold goes to the dead letters."""
        self._take(outcome)
        self._produce_ok(outcome)

    def bury(self, outcome: Outcome, failure: Failure) -> None:
        """Dead letter first; its answer when that is confirmed."""
        self._take(outcome)
        self._bury(outcome, failure)

    def serve(self, timeout: float, now: float) -> None:
        """Take in what became of the records under way, waiting at most ``timeout`` seconds; repeat what is due."""
        confirmed, failed = self._producer.deliveries(timeout)
        if confirmed:
            self._confirm(confirmed)
        if failed:
            self._deal_with(failed, now)
        while self._again and self._again[0][0] <= now:
            self._send(heapq.heappop(self._again)[2])

    @property
    def under_way(self) -> bool:
        """Whether the client has something to deliver, so that waiting for it makes sense."""
        return self.outstanding > len(self._again)

    def next_repeat(self) -> float:
        """When the next delivery is to be tried again (infinity: none)."""
        return self._again[0][0] if self._again else math.inf

    def _take(self, outcome: Outcome) -> None:
        task = outcome.task
        self.outstanding += 1
        self.outstanding_bytes += task.size + len(outcome.result)
        task.lane.unconfirmed += 1

    # -- sending

    def _send(self, sending: _Sending) -> None:
        outcome = sending if isinstance(sending, Outcome) else sending.outcome
        if not outcome.task.lane.open:  # its lease ended meanwhile: the next owner answers
            self._forget(outcome)
        elif isinstance(sending, Outcome):
            self._produce_ok(sending)
        elif isinstance(sending, _Letter):
            self._produce_letter(sending)
        else:
            self._produce_bad_news(sending)

    def _produce_ok(self, outcome: Outcome) -> None:
        value, key = self._encoder.ok(outcome), outcome.task.record.key
        if size_of(key, value) > self._max_answer_bytes:
            self._bury(outcome, self._oversized(len(value)))
        else:
            self._producer.produce(self._ack_topic, key, value, (), outcome)

    def _oversized(self, size: int) -> Failure:
        message = f"the answer has {size} bytes; {self._ack_topic} takes {self._max_answer_bytes}"
        return Failure("OversizedResult", message)

    def _bury(self, outcome: Outcome, failure: Failure) -> None:
        self.outstanding_bytes -= len(outcome.result)
        outcome.failure = failure
        outcome.result = b""
        letter = dead_letter(outcome.task, failure, self._config.max_dead_letter_bytes)
        self._produce_letter(_Letter(outcome, failure, letter))

    def _produce_letter(self, sending: _Letter) -> None:
        self._producer.produce(self._config.dead_letter_topic, *sending.letter, sending)

    def _produce_bad_news(self, sending: _BadNews) -> None:
        value = self._encoder.dead_lettered(sending.outcome, sending.failure)
        self._producer.produce(self._ack_topic, sending.key, value, (), sending)

    # -- what became of it

    def _confirm(self, confirmed: list[object]) -> None:
        self._finish([sending for sending in confirmed if isinstance(sending, Outcome)], "OK")
        self._finish([sending.outcome for sending in confirmed if isinstance(sending, _BadNews)], "DEAD_LETTERED")
        for sending in confirmed:
            if isinstance(sending, _Letter):
                self._metrics.add("dead_letters_total")
                self._send(_BadNews(sending.outcome, sending.failure, sending.outcome.task.record.key))

    def _finish(self, outcomes: list[Outcome], name: str) -> None:
        """These answers are confirmed: settle their requests."""
        if not outcomes:
            return
        now_ns = time.time_ns()
        for outcome in outcomes:
            task = outcome.task
            lane = task.lane
            lane.unconfirmed -= 1
            self.outstanding_bytes -= task.size + len(outcome.result)
            self._settled(lane, task.record.offset)
        self.outstanding -= len(outcomes)
        self.answered += len(outcomes)
        self._metrics.add("tasks_total", len(outcomes), label=name)
        self._metrics.observe("settle_seconds", [outcome.age(now_ns) for outcome in outcomes])
        self._tasklog.finished(outcomes, name, now_ns)

    def _forget(self, outcome: Outcome) -> None:
        task = outcome.task
        task.lane.unconfirmed -= 1
        self.outstanding -= 1
        self.outstanding_bytes -= task.size + len(outcome.result)
        self._metrics.add("dropped_total")

    def _deal_with(self, failed: list[tuple[object, KafkaFailure]], now: float) -> None:
        """Send something smaller where the size was the trouble, and the same again where it was not."""
        for token, trouble in failed:
            sending = cast("_Sending", token)
            smaller = self._smaller(sending) if trouble.code == _TOO_LARGE else None
            if smaller is not None:
                self._send(smaller)
            elif trouble.code == _TOO_LARGE and isinstance(sending, Outcome):
                self._bury(sending, self._oversized(len(sending.result)))
            else:
                self._metrics.add("delivery_failures_total", label=trouble.code)
                heapq.heappush(self._again, (now + AGAIN_SECONDS, next(self._order), sending))
        code, reason, _ = failed[-1][1]  # one line for all: thousands may fail at once
        log.warning("delivery.failed", code=code, reason=reason, count=len(failed))

    @staticmethod
    def _smaller(sending: _Sending) -> _Letter | _BadNews | None:
        """What to send instead, leaving out what can be spared the most; None if that is all left out already."""
        if isinstance(sending, _Letter):
            letter = reduced(sending.letter)
            return None if letter is None else sending._replace(letter=letter)
        if isinstance(sending, _BadNews) and sending.failure.traceback:
            return sending._replace(failure=sending.failure._replace(traceback=""))
        if isinstance(sending, _BadNews) and (sending.failure.message or sending.key):
            return sending._replace(failure=sending.failure._replace(message=""), key=None)
        return None
