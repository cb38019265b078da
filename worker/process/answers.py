"""Answers on their way: encode, produce, wait for the confirmed delivery, settle."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple, cast

import structlog

from worker.core.model import Failure, Outcome, ages
from worker.process.letters import DeadLetter, dead_letter, oversized, reduced, size_of

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
    """The answer to a request without a result, under way; ``name`` is its outcome in the contract's words."""

    outcome: Outcome
    failure: Failure
    key: bytes | None
    name: str


# What is under way, and the token it is produced with. An Outcome stands for its own good answer.
_Sending = Outcome | _Letter | _BadNews


class Answers:
    """Takes outcomes that are to be answered and calls ``settled(lane, *offsets)`` once the answers are confirmed.

    A delivery that failed for any reason but its size is produced again, for ever: a request is never left without
    its answer, and "failed" may mean "delivered", so readers know an answer by its origin. Poll thread.
    """

    def __init__(
        self,
        config: ProcessConfig,
        producer: Producer,
        encoder: AnswerEncoder,
        settled: Callable[..., None],
        metrics: Metrics,
        tasklog: TaskLog,
    ) -> None:
        self.busy = False  # nothing here keeps a commit waiting
        self.expelled = False  # nor asks the group
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
        # What was started at most once will be answered by nobody else, whoever has the partition now.
        self._needs_lease = config.guarantee != "at-most-once"
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

    def refuse(self, outcome: Outcome, failure: Failure, name: str) -> None:
        """Answer with ``EXPIRED`` or ``CANCELLED``."""
        self._take(outcome)
        self.outstanding_bytes -= len(outcome.result)
        outcome.result = b""
        self._produce_bad_news(_BadNews(outcome, failure, outcome.task.record.key, name))

    def settle_down(self) -> None:
        """Nothing to wait for: see ``Transactions``, as for the next."""

    def decided(self, _timeout: float, _now: float) -> bool:
        """Answers commit nothing."""
        return True

    def joined(self) -> None:
        """Nothing to do."""

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
        if self._needs_lease and not outcome.task.lane.open:  # its lease ended meanwhile: the next owner answers
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
            self._bury(outcome, oversized(len(value), self._ack_topic, self._max_answer_bytes))
        else:
            self._producer.produce(self._ack_topic, key, value, (), outcome)

    def _bury(self, outcome: Outcome, failure: Failure) -> None:
        self.outstanding_bytes -= len(outcome.result)
        outcome.failure = failure
        outcome.result = b""
        letter = dead_letter(outcome.task, failure, self._config.max_dead_letter_bytes)
        self._produce_letter(_Letter(outcome, failure, letter))

    def _produce_letter(self, sending: _Letter) -> None:
        self._producer.produce(self._config.dead_letter_topic, *sending.letter, sending)

    def _produce_bad_news(self, sending: _BadNews) -> None:
        value = self._encoder.unprocessed(sending.outcome, sending.failure, sending.name)
        self._producer.produce(self._ack_topic, sending.key, value, (), sending)

    # -- what became of it

    def _confirm(self, confirmed: list[object]) -> None:
        self._finish([sending for sending in confirmed if isinstance(sending, Outcome)], "OK")
        for sending in [sending for sending in confirmed if not isinstance(sending, Outcome)]:
            if isinstance(sending, _BadNews):
                self._finish([sending.outcome], sending.name)
            elif isinstance(sending, _Letter):
                self._metrics.add("dead_letters_total")
                key = sending.outcome.task.record.key
                self._send(_BadNews(sending.outcome, sending.failure, key, "DEAD_LETTERED"))

    def _finish(self, outcomes: list[Outcome], name: str) -> None:
        """These answers are confirmed: settle their requests."""
        if not outcomes:
            return
        now_ns = time.time_ns()
        answered: defaultdict[Lane, list[int]] = defaultdict(list)
        for outcome in outcomes:
            task = outcome.task
            answered[task.lane].append(task.record.offset)
            self.outstanding_bytes -= task.size + len(outcome.result)
        for lane, offsets in answered.items():
            lane.unconfirmed -= len(offsets)
            self._settled(lane, *offsets)
        self.outstanding -= len(outcomes)
        self.answered += len(outcomes)
        self._metrics.add("tasks_total", len(outcomes), label=name)
        self._metrics.observe("settle_seconds", ages(outcomes, now_ns))
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
                size = len(sending.result)
                self._bury(sending, oversized(size, self._ack_topic, self._max_answer_bytes))
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
