"""Delivers answers one by one: encode, produce, wait for the confirmation, settle."""

from __future__ import annotations

import heapq
import itertools
import math
import time
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple, cast

import structlog

from worker.core.model import Failure, Outcome, ages
from worker.process.answer_order import AnswerOrder
from worker.process.dead_letters import DeadLetter, dead_letter, oversized, reduced, size_of
from worker.process.echo import Echo
from worker.process.follow_ups import BATCH_CODES, REFUSED_CODES, FollowUps, refused
from worker.process.responder import held

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.codec import AnswerEncoder
    from worker.core.claim import Claim
    from worker.core.model import Headers, Partition
    from worker.kafka.ports import KafkaFailure, Message, Producer
    from worker.process.shared import Shared

RETRY_SECONDS = 1.0  # after a failed delivery
APART_SECONDS = 0.05  # between retries that belong in different batches
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"

log = structlog.get_logger("answers")


class _DeadLettering(NamedTuple):
    """A dead letter that is being delivered. The answer follows when it is confirmed."""

    outcome: Outcome
    failure: Failure
    record: DeadLetter


class _Pending:
    """A good outcome whose answer waits until its follow-up requests are confirmed."""

    __slots__ = ("left", "outcome", "over")

    def __init__(self, outcome: Outcome, left: int) -> None:
        self.outcome = outcome
        self.left = left  # follow-up requests that are not confirmed yet
        self.over = False  # the request has become a dead letter, or another process answers it


class _FollowUp(NamedTuple):
    """One of these follow-up requests."""

    pending: _Pending
    message: Message


class _FailureAnswer(NamedTuple):
    """The answer to a request without a result. ``name`` is its outcome as on the wire."""

    outcome: Outcome
    failure: Failure
    key: bytes | None
    headers: Headers
    name: str


# What is being delivered, used as the token of the delivery. An Outcome stands for its own answer with a result.
_Sending = Outcome | _DeadLettering | _FailureAnswer | _FollowUp


class DeliveryResponder:
    """Delivers answers one by one and calls ``settled(claim, *offsets)`` when they are confirmed. See ``Responder``.

    If a delivery fails for any reason but its size, it is repeated without limit, because every request must be
    answered. "Failed" may mean "delivered", so readers identify an answer by its origin.
    """

    busy = fenced = False  # this class commits nothing itself

    def __init__(
        self, shared: Shared, producer: Producer, encoder: AnswerEncoder, settled: Callable[..., None]
    ) -> None:
        config = shared.config
        self.answered = 0
        self.outstanding = 0
        self.outstanding_bytes = 0
        self._config = config
        self._ack_topic, self._max_answer_bytes = config.ack_topic, config.max_answer_bytes
        self._producer = producer
        self._encoder = encoder
        self._echo = Echo(config.echo_headers)
        self._follow_ups = FollowUps(config, self._echo)
        self._settled = settled
        self._metrics = shared.metrics
        self._task_log = shared.task_log
        # No other process will answer a task that starts only once.
        self._needs_claim = not shared.guarantee.starts_once
        self._retries: list[tuple[float, int, _Sending]] = []
        self._apart_at = 0.0  # when the last of the retries that belong in different batches is due
        self._order = itertools.count()
        self._waiting: AnswerOrder[Outcome | _FailureAnswer] = AnswerOrder(config.ordering)

    def ok(self, outcome: Outcome) -> None:
        """See ``Responder``."""
        self._take(outcome)
        if outcome.sent:
            self._produce_follow_ups(outcome)
        elif self._waiting.rows:
            self._answer(outcome)
        else:
            self._produce_ok(outcome)

    def dead_letter(self, outcome: Outcome, failure: Failure) -> None:
        """See ``Responder``."""
        self._take(outcome)
        self._dead_letter(outcome, failure)

    def fail(self, outcome: Outcome, failure: Failure, name: str) -> None:
        """See ``Responder``."""
        self._take(outcome)
        self.outstanding_bytes -= len(outcome.result)
        outcome.result = b""
        self._answer(self._failure_answer(outcome, failure, name))

    def quiesce(self) -> bool:
        """See ``Responder``."""
        return True

    def assigned(self) -> None:
        """See ``Responder``: nothing to do."""

    def serve(self, timeout: float, now: float) -> None:
        """See ``Responder``."""
        confirmed, failed = self._producer.deliveries(timeout)
        if confirmed:
            self._confirm(confirmed)
        if failed:
            self._handle_failures(failed, now)
        while self._retries and self._retries[0][0] <= now:
            self._send(heapq.heappop(self._retries)[2])
        for answer in self._waiting.ready() if self._waiting.rows else ():
            self._send(answer)

    @property
    def under_way(self) -> bool:
        """See ``Responder``: return whether the client has something to deliver."""
        return self.outstanding > len(self._retries) + self._waiting.held

    def next_due(self) -> float:
        """See ``Responder``: return when the next delivery is tried again."""
        return self._retries[0][0] if self._retries else math.inf

    def close(self) -> None:
        """See ``Responder``."""
        self._producer.close()

    def _take(self, outcome: Outcome) -> None:
        self.outstanding += 1
        self.outstanding_bytes += held(outcome)

    # -- sending

    def _send(self, sending: _Sending) -> None:
        if isinstance(sending, _FollowUp):
            self._produce_follow_up(sending)
            return
        outcome = sending if isinstance(sending, Outcome) else sending.outcome
        if self._needs_claim and not outcome.task.claim.valid:  # the next owner answers
            self._forget(outcome)
        elif isinstance(sending, Outcome):
            self._produce_ok(sending)
        elif isinstance(sending, _DeadLettering):
            self._produce_dead_letter(sending)
        else:
            self._produce_failure(sending)

    def _answer(self, answer: Outcome | _FailureAnswer) -> None:
        """Send an answer, or keep it until the earlier ones of its partition or key are sent."""
        outcome = answer if isinstance(answer, Outcome) else answer.outcome
        if not self._waiting.hold(outcome.task, answer):
            self._send(answer)

    def _produce_ok(self, outcome: Outcome) -> None:
        record, value = outcome.task.record, self._encoder.ok(outcome)
        room = self._max_answer_bytes - size_of(record.key, value)
        if room < 0:
            self._dead_letter(outcome, oversized(len(value), self._ack_topic, self._max_answer_bytes))
        else:
            headers = self._echo.of(record.headers, room) if record.headers else ()
            self._producer.produce(self._ack_topic, record.key, value, headers, outcome)

    def _produce_follow_ups(self, outcome: Outcome) -> None:
        """Produce the follow-up requests. The answer follows when they are confirmed."""
        self._waiting.wait(outcome.task)
        messages = self._follow_ups.messages(outcome)
        if isinstance(messages, Failure):
            self._dead_letter(outcome, messages)
            return
        pending = _Pending(outcome, len(messages))
        for message in messages:
            self._produce_follow_up(_FollowUp(pending, message))

    def _produce_follow_up(self, sending: _FollowUp) -> None:
        pending = sending.pending
        if pending.over:
            return
        if self._needs_claim and not pending.outcome.task.claim.valid:  # the next owner sends it
            pending.over = True
            self._forget(pending.outcome)
            return
        topic, key, value, headers = sending.message
        self._producer.produce(topic, key, value, headers, sending)

    def _dead_letter(self, outcome: Outcome, failure: Failure) -> None:
        self.outstanding_bytes -= held(outcome)
        outcome.failure, outcome.result, outcome.sent = failure, b"", ()
        self.outstanding_bytes += held(outcome)
        self._waiting.wait(outcome.task)
        record = dead_letter(outcome.task, failure, self._config.max_dead_letter_bytes)
        self._produce_dead_letter(_DeadLettering(outcome, failure, record))

    def _produce_dead_letter(self, sending: _DeadLettering) -> None:
        self._producer.produce(self._config.dead_letter_topic, *sending.record, sending)

    def _failure_answer(self, outcome: Outcome, failure: Failure, name: str) -> _FailureAnswer:
        record = outcome.task.record
        headers = self._echo.of(record.headers, self._max_answer_bytes) if record.headers else ()
        return _FailureAnswer(outcome, failure, record.key, headers, name)

    def _produce_failure(self, sending: _FailureAnswer) -> None:
        value = self._encoder.unprocessed(sending.outcome, sending.failure, sending.name)
        self._producer.produce(self._ack_topic, sending.key, value, sending.headers, sending)

    # -- confirmed and failed deliveries

    def _confirm(self, confirmed: list[object]) -> None:
        self._finish([sending for sending in confirmed if isinstance(sending, Outcome)], "OK")
        for sending in [sending for sending in confirmed if not isinstance(sending, Outcome)]:
            if isinstance(sending, _FollowUp):
                self._confirm_follow_up(sending.pending)
            elif isinstance(sending, _FailureAnswer):
                self._finish([sending.outcome], sending.name)
            elif isinstance(sending, _DeadLettering):
                self._metrics.add("dead_letters_total")
                self._answer(self._failure_answer(sending.outcome, sending.failure, "DEAD_LETTERED"))

    def _confirm_follow_up(self, pending: _Pending) -> None:
        self._metrics.add("follow_ups_total")
        pending.left -= 1
        if not pending.left and not pending.over:
            self._answer(pending.outcome)

    def _refuse_follow_up(self, pending: _Pending, failure: KafkaFailure) -> None:
        """Turn the request into a dead letter, because no retry helps. What was already sent stays sent."""
        if not pending.over:
            pending.over = True
            self._dead_letter(pending.outcome, refused(pending.outcome, failure.message))

    def _finish(self, outcomes: list[Outcome], name: str) -> None:
        """Settle the requests whose answers are confirmed."""
        if not outcomes:
            return
        now_ns = time.time_ns()
        answered: defaultdict[tuple[Claim, Partition], list[int]] = defaultdict(list)
        for outcome in outcomes:
            task = outcome.task
            answered[task.claim, task.record.partition].append(task.record.offset)
            self.outstanding_bytes -= held(outcome)
        for (claim, partition), offsets in answered.items():
            self._settled(claim, partition, *offsets)
        self.outstanding -= len(outcomes)
        self.answered += len(outcomes)
        self._metrics.add("tasks_total", len(outcomes), label=name)
        self._metrics.observe("settle_seconds", ages(outcomes, now_ns))
        self._task_log.finished(outcomes, name, now_ns)

    def _forget(self, outcome: Outcome) -> None:
        self.outstanding -= 1
        self.outstanding_bytes -= held(outcome)
        self._metrics.add("dropped_total")
        self._waiting.drop(outcome.task)

    def _handle_failures(self, failed: list[tuple[object, KafkaFailure]], now: float) -> None:
        """Send something smaller if the size was the cause, or else the same again."""
        suspects = self._suspects(failed)
        for token, trouble in failed:
            sending = cast("_Sending", token)
            if isinstance(sending, _FollowUp) and trouble.code in REFUSED_CODES:
                self._handle_refusal(sending, trouble, now, alone=suspects[sending.message.topic] == 1)
                continue
            smaller = self._smaller(sending) if trouble.code == _TOO_LARGE else None
            if smaller is not None:
                self._send(smaller)
            elif trouble.code == _TOO_LARGE and isinstance(sending, Outcome):
                size = len(sending.result)
                self._dead_letter(sending, oversized(size, self._ack_topic, self._max_answer_bytes))
            else:
                self._retry(sending, trouble, now + RETRY_SECONDS)
        code, reason = failed[-1][1][:2]  # one line for all, because thousands may fail at once
        log.warning("delivery.failed", code=code, reason=reason, count=len(failed))

    def _handle_refusal(self, sending: _FollowUp, trouble: KafkaFailure, now: float, *, alone: bool) -> None:
        """Refuse a follow-up request, or try it again apart from the others that may be to blame."""
        if trouble.code in BATCH_CODES and not alone:
            self._apart_at = max(now + RETRY_SECONDS, self._apart_at + APART_SECONDS)
            self._retry(sending, trouble, self._apart_at)
        else:
            self._refuse_follow_up(sending.pending, trouble)

    def _retry(self, sending: _Sending, trouble: KafkaFailure, due: float) -> None:
        self._metrics.add("delivery_failures_total", label=trouble.code)
        heapq.heappush(self._retries, (due, next(self._order), sending))

    @staticmethod
    def _suspects(failed: list[tuple[object, KafkaFailure]]) -> Counter[str]:
        """Return the number of follow-up requests by topic that may have failed because of another of their batch.

        The client reports a whole batch at once. If only one is reported, it was alone in its batch.
        """
        return Counter(
            token.message.topic
            for token, trouble in failed
            if isinstance(token, _FollowUp) and trouble.code in BATCH_CODES
        )

    @staticmethod
    def _smaller(sending: _Sending) -> _DeadLettering | _FailureAnswer | None:
        """Return what to send instead, without the least important part; None if nothing is left to drop."""
        if isinstance(sending, _DeadLettering):
            record = reduced(sending.record)
            return None if record is None else sending._replace(record=record)
        if isinstance(sending, _FailureAnswer) and sending.failure.traceback:
            return sending._replace(failure=sending.failure._replace(traceback=""))
        if isinstance(sending, _FailureAnswer) and (sending.failure.message or sending.key or sending.headers):
            return sending._replace(failure=sending.failure._replace(message=""), key=None, headers=())
        return None
