"""Exactly once: answers, dead letters and offsets in transactions that begin when the work is done."""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.core.detached import DetachedClaim, mark_group, settled_mark
from worker.core.model import ages
from worker.kafka.ports import FENCED_CODES, Handshake, Position, Transaction
from worker.process.committer import QUIET_SECONDS
from worker.process.follow_ups import BATCH_CODES, REFUSED_CODES
from worker.process.responder import held
from worker.process.responses import Response, ResponseBuilder

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.codec import AnswerEncoder
    from worker.core.model import Failure, Outcome, Task
    from worker.core.owned_partition import OwnedPartition
    from worker.kafka.ports import Consumer, Ended, KafkaFailure
    from worker.process.committer import Commit, Committer
    from worker.process.shared import Shared
    from worker.process.transaction_thread import TransactionThread

MAX_RESPONSES = 4_096  # in one transaction
MAX_BYTES = 8 * 1024 * 1024
RETRY_SECONDS = (0.05, 1.0)  # the first and the longest delay before an aborted transaction is tried again
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"

log = structlog.get_logger("transactions")


class _UnderWay(NamedTuple):
    """A transaction under way, and the commit that it makes for each partition."""

    responses: list[Response]
    commits: list[Commit]


@dataclass(slots=True)
class _Detached:
    """The response to a detached task, which is answered in a separate transaction."""

    response: Response
    claim: DetachedClaim
    not_before: float = 0.0
    delay: float = RETRY_SECONDS[0]


class TransactionalResponder:
    """Gathers the next transaction while one is under way. See ``Responder``.

    The requests of a transaction are settled in the ledgers when it is sent; nothing else commits meanwhile (``busy``).
    The committer's transactions, which have no answers, use the same thread.
    If it is aborted, they are incomplete again, and their responses are sent again until they are committed or the
    leases have ended. So each transaction commits only offsets whose answers are in it or committed before.
    """

    def __init__(
        self,
        shared: Shared,
        thread: TransactionThread,
        encoder: AnswerEncoder,
        consumer: Consumer,
        committer: Committer,
        committed: Callable[..., None] = lambda *_: None,
    ) -> None:
        """``committed(claim, partition, offset)`` is called for each request whose answer is committed."""
        self.answered = 0
        self.outstanding = 0
        self.outstanding_bytes = 0
        self.fenced = False
        self._config = shared.config
        self._thread = thread
        self._builder = ResponseBuilder(shared.config, encoder)
        self._consumer = consumer
        self._assignment = shared.assignment
        self._committer = committer
        self._metrics = shared.metrics
        self._task_log = shared.task_log
        self._clock = shared.clock
        self._on_committed = committed
        self._member: object | None = None
        self._gathered: deque[Response] = deque()
        self._gathered_at = 0.0
        self._detached: deque[_Detached] = deque()
        self._alternate = False  # the last transaction was that of a detached task, so another one goes first
        self._aborted: deque[Response] = deque()  # of aborted transactions, to be sent again first
        self._sent: _UnderWay | None = None
        self._sent_detached: _Detached | None = None  # the one that is under way
        self._quiet_until = 0.0
        self._sent_at = 0.0
        self._not_before = 0.0
        self._delay = RETRY_SECONDS[0]
        self._max_responses = MAX_RESPONSES

    # -- responses

    def ok(self, outcome: Outcome) -> None:
        """See ``Responder``."""
        self._gather(self._builder.ok(outcome))

    def dead_letter(self, outcome: Outcome, failure: Failure) -> None:
        """See ``Responder``."""
        self._gather(self._builder.dead_letter(outcome, failure))

    def fail(self, outcome: Outcome, failure: Failure, name: str) -> None:
        """See ``Responder``."""
        self._gather(self._builder.failure(outcome, failure, name))

    def _gather(self, response: Response) -> None:
        task = response.outcome.task
        if isinstance(task.claim, DetachedClaim):
            self._detached.append(_Detached(response, task.claim))
        else:
            if not self._gathered:
                self._gathered_at = self._clock()
            self._gathered.append(response)
        self.outstanding += 1
        self.outstanding_bytes += held(response.outcome)

    # -- transactions

    def serve(self, timeout: float, now: float) -> None:
        """See ``Responder``."""
        ended = self._thread.ended(timeout)
        if ended is not None:
            self._take_in(ended, now)
        if self._thread.busy or self._committer.in_flight or now < self._quiet_until:
            return
        due = self._is_due(now)
        detached = next((one for one in self._detached if now >= one.not_before), None)
        if detached is not None and not (due and self._alternate):
            self._alternate = True
            self._send_detached(detached)
        elif due:
            self._alternate = False
            self._send()

    def assigned(self) -> None:
        """See ``Responder``: from now on this is the member that commits."""
        self._member = self._consumer.membership()
        self.fenced = False

    @property
    def busy(self) -> bool:
        """See ``Responder``: return whether a transaction is under way, has to be repeated, or may not follow yet."""
        return self._thread.busy or bool(self._aborted) or self._clock() < self._quiet_until

    def quiesce(self) -> bool:
        """See ``Responder``."""
        self._quiet_until = self._clock() + QUIET_SECONDS if self._thread.busy else 0.0
        return not self._thread.busy

    @property
    def under_way(self) -> bool:
        """See ``Responder``."""
        return self._thread.busy

    def next_due(self) -> float:
        """See ``Responder``."""
        if self._thread.busy:
            return math.inf
        due = min((one.not_before for one in self._detached), default=math.inf)
        if self._aborted:
            due = min(due, self._not_before)
        elif self._gathered:
            due = min(due, max(self._not_before, self._gathered_at + self._config.commit_interval))
        return max(due, self._quiet_until)

    def close(self) -> None:
        """See ``Responder``."""
        self._thread.close()

    def _is_due(self, now: float) -> bool:
        if now < self._not_before:
            return False
        if self._aborted or len(self._gathered) >= self._config.commit_every:
            return bool(self._aborted or self._gathered)
        if now - self._gathered_at >= self._config.commit_interval or self._committer.leaving:
            return bool(self._gathered)
        return any(response.outcome.task.claim.leaving for response in self._gathered)

    def _send(self) -> None:
        responses = self._pick(self._aborted) or self._pick(self._gathered)
        if not responses:
            return
        commits = self._commits(responses)
        messages = [message for response in responses for message in response.messages]
        if self._member is None:
            self._member = self._consumer.membership()
        self._sent, self._sent_at = _UnderWay(responses, commits), self._clock()
        positions = {one.owned.partition: one.position for one in commits}
        one_by_one = any(response.one_by_one for response in responses)
        self._thread.send(Transaction(messages, positions, self._member, one_by_one=one_by_one))

    def _send_detached(self, detached: _Detached) -> None:
        """Answer a detached task, with the handshake that ``worker.core.detached`` describes."""
        self._detached.remove(detached)
        response, claim = detached.response, detached.claim
        if not claim.valid:
            self._drop(response)
            return
        group = mark_group(self._config.group, claim.partition, claim.offset, claim.holder)
        handshake = Handshake(group, claim.partition, Position(*settled_mark(claim)), claim.is_named_by)
        self._sent, self._sent_detached, self._sent_at = _UnderWay([response], []), detached, self._clock()
        self._thread.send(Transaction(response.messages, {}, None, handshake, response.one_by_one))

    def _commits(self, responses: list[Response]) -> list[Commit]:
        answered = Counter(response.outcome.task.claim for response in responses)
        commits = []
        for owned in self._assignment:
            if not owned.has_position:
                continue
            if owned.lease in answered or owned.changed or owned.starts.outstanding:
                # The last transaction of a partition that is leaving tells the next owner that no task runs.
                last = owned.unconfirmed == answered[owned.lease] and not owned.in_flight
                clean = owned.lease.leaving and last
                commits.append(self._committer.prepare(owned, clean=clean))
        return commits

    def _pick(self, source: deque[Response]) -> list[Response]:
        """Return the next responses with valid claims, settled in their ledgers. Drop the others."""
        picked: list[Response] = []
        size = 0
        while source and len(picked) < self._max_responses and size < MAX_BYTES:
            response = source.popleft()
            task = response.outcome.task
            owned = self._assignment.owner_of(task)
            if owned is None:
                self._drop(response)
                continue
            owned.settle(task.record.offset)
            picked.append(response)
            size += response.size
        return picked

    def _take_in(self, ended: Ended, now: float) -> None:
        sent, self._sent = self._sent, None
        detached, self._sent_detached = self._sent_detached, None
        if sent is None:
            self._committer.committed(self._thread.positions, ended.failure)
            return
        if ended.committed:
            if detached is None:
                self._delay = RETRY_SECONDS[0]
                self._max_responses = min(MAX_RESPONSES, 2 * self._max_responses) if self._aborted else MAX_RESPONSES
            self.fenced = self.fenced and not sent.commits
            self._committer.measured(now - self._sent_at)
            self._committed(sent)
            return
        if ended.failure is not None:
            self._report(ended.failure, sent)
        if detached is not None:
            self._take_in_detached(ended, detached, now)
            return
        for one in sent.commits:
            one.owned.changed = True
        self._member = None  # the generation may have changed; the leases are checked again
        self._unsettle(sent.responses)
        if ended.failure is not None:
            self._handle_failure(ended.failure, sent.responses, now)

    def _unsettle(self, responses: list[Response]) -> None:
        """Keep the responses of an aborted transaction. Their requests are incomplete again."""
        self._aborted.extendleft(reversed(responses))
        tasks: dict[OwnedPartition, list[Task]] = {}
        for response in responses:
            task = response.outcome.task
            if (owned := self._assignment.owner_of(task)) is not None:
                tasks.setdefault(owned, []).append(task)
        for owned, several in tasks.items():
            owned.unsettle(several)

    def _report(self, failure: KafkaFailure, sent: _UnderWay) -> None:
        self._metrics.add("transactions_aborted_total", label=failure.code)
        log.warning("transaction.aborted", code=failure.code, reason=failure.message, answers=len(sent.responses))

    def _take_in_detached(self, ended: Ended, detached: _Detached, now: float) -> None:
        """Handle an answer to a detached task that was not committed."""
        if ended.superseded:
            detached.claim.end()
            self._drop(detached.response)
            return
        self.fenced = False
        other = None
        if ended.failure is not None and self._is_refused(ended.failure, [detached.response]):
            other = self._other(detached.response, ended.failure)
        if other is not None:
            detached.response = other
        else:
            detached.not_before, detached.delay = now + detached.delay, min(RETRY_SECONDS[1], 2 * detached.delay)
        self._detached.append(detached)

    def _handle_failure(self, failure: KafkaFailure, responses: list[Response], now: float) -> None:
        """Send something else at once if a topic does not accept a record, else the same after a delay."""
        self._committer.failed(failure)
        self.fenced = failure.code in FENCED_CODES
        if not (self._is_refused(failure, responses) and self._shrink(responses, failure)):
            self._not_before, self._delay = now + self._delay, min(RETRY_SECONDS[1], self._delay * 2)

    def _shrink(self, responses: list[Response], failure: KafkaFailure) -> bool:
        """Send fewer responses at once to find the record that a topic does not accept, and replace that one.

        Return whether the next transaction is another one.
        """
        self._max_responses = max(1, len(responses) // 2)
        if len(responses) > 1:
            return True
        other = self._other(self._aborted[0], failure)
        if other is not None:
            self._aborted[0] = other
        return other is not None

    def _other(self, response: Response, failure: KafkaFailure) -> Response | None:
        """Return what replaces a response that a topic does not accept; None if nothing can."""
        if failure.code in BATCH_CODES and len(response.outcome.sent) > 1 and not response.one_by_one:
            return response._replace(one_by_one=True)
        before = held(response.outcome)
        too_large = failure.code == _TOO_LARGE
        other = self._builder.smaller(response) if too_large else self._builder.refused(response, failure.message)
        if other is not None:
            self.outstanding_bytes += held(other.outcome) - before
        return other

    def _is_refused(self, failure: KafkaFailure, responses: list[Response]) -> bool:
        """Return whether a topic does not accept one of the records, so that something else must be sent.

        Answers and dead letters wait until their topic is there again. For a while after a topic was deleted, the
        client does not say which one is unknown; repeated transactions find out.
        """
        if failure.code == _TOO_LARGE:
            return True
        if failure.code not in REFUSED_CODES or not any(response.outcome.sent for response in responses):
            return False
        if not failure.topic:
            return failure.code != "UNKNOWN_TOPIC_OR_PART"
        return failure.topic not in (self._config.ack_topic, self._config.dead_letter_topic)

    # -- how it ended

    def _committed(self, sent: _UnderWay) -> None:
        self._committer.confirm(sent.commits)
        now_ns = time.time_ns()
        for name in dict.fromkeys([response.name for response in sent.responses]):
            outcomes = [response.outcome for response in sent.responses if response.name == name]
            self._metrics.add("tasks_total", len(outcomes), label=name)
            if name == "DEAD_LETTERED":
                self._metrics.add("dead_letters_total", len(outcomes))
            self._metrics.add("follow_ups_total", sum([len(outcome.sent) for outcome in outcomes]))
            self._metrics.observe("settle_seconds", ages(outcomes, now_ns))
            self._task_log.finished(outcomes, name, now_ns)
        for response in sent.responses:
            if isinstance(response.outcome.task.claim, DetachedClaim):
                response.outcome.task.claim.delivered = True
            self._forget(response)
            task = response.outcome.task
            self._on_committed(task.claim, task.record.partition, task.record.offset)
        self.answered += len(sent.responses)

    def _drop(self, response: Response) -> None:
        self._forget(response)
        self._metrics.add("dropped_total")

    def _forget(self, response: Response) -> None:
        task = response.outcome.task
        self.outstanding -= 1
        self.outstanding_bytes -= held(response.outcome)
        owned = self._assignment.owner_of(task)
        if owned is not None:
            owned.unconfirmed -= 1
