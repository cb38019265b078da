"""Handles the end of an attempt: an answer, another attempt, a dead letter, or nothing. Used on the poll thread."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from worker.core.detached import DetachedClaim
from worker.core.model import OK, Failure, Outcome, Verdict
from worker.core.retry import Cancel, DeadLetter, End, Expire, Retry, RetryPolicy, Settle, attempts_after, decide
from worker.executors.port import ChildEnded, ExecutorFailed
from worker.executors.reports import PendingReport
from worker.formats import FORMATS
from worker.handlers.stored_attempt import STORE_UNAVAILABLE
from worker.process.responder import is_full

if TYPE_CHECKING:
    from collections.abc import Collection

    from worker.core.model import Task
    from worker.core.owned_partition import OwnedPartition
    from worker.executors.mailbox import Mailbox
    from worker.executors.reports import Report
    from worker.process.dispatcher import Dispatcher
    from worker.process.holder import Holder
    from worker.process.long_tasks import LongTasks
    from worker.process.responder import Responder
    from worker.process.shared import Shared
    from worker.process.store_bridge import StoreBridge
    from worker.process.tracing import AttemptSpans

_CANCELLED = Failure("Cancelled", "requested")


class ResultHandler:
    """Handles the outcomes that the executor has posted."""

    def __init__(
        self,
        shared: Shared,
        mailbox: Mailbox,
        dispatcher: Dispatcher,
        responder: Responder,
        holder: Holder,
        store: StoreBridge | None,
        long_tasks: LongTasks,
        spans: AttemptSpans | None = None,
    ) -> None:
        config = shared.config
        self._guarantee = shared.guarantee
        self._stores_results = bool(config.offset_store)
        self._lifecycle = shared.lifecycle
        self._mailbox = mailbox
        self._assignment = shared.assignment
        self._dispatcher = dispatcher
        self._responder = responder
        self._holder = holder
        self._store = store
        self._metrics = shared.metrics
        self._task_log = shared.task_log
        self._long_tasks = long_tasks
        self._spans = spans
        self._to_cancel: set[Task] = set()  # running tasks with a cancel request
        self._maybe_stored: set[Task] = set()  # the last attempt ended in a commit in the store with unknown outcome
        self._format = FORMATS[config.message_format]
        self._policy = RetryPolicy(config.max_attempts, config.retry_first, config.retry_greatest)

    def collect(self, now: float) -> bool:
        """Handle what was posted so far. Return whether there was anything.

        While the maximum number of answers is being delivered, leave the outcomes where they are, so that the executor
        waits. When the process leaves, take them all the same: nothing new starts, so they are few.

        Raise the exception with which the executor failed.
        """
        waits = is_full(self._responder) and not self._lifecycle.leaving
        events = self._mailbox.take_news() if waits else self._mailbox.take()
        if not events:
            return False
        outcomes = [event for event in events if isinstance(event, Outcome)]
        self._dispatcher.in_flight -= len(outcomes)
        if self._spans is not None:
            self._spans.record(outcomes)
        for event in events:
            if isinstance(event, Outcome):
                self._handle(event, now)
            elif isinstance(event, PendingReport):
                self._report(event.take())
        self._measure([outcome for outcome in outcomes if outcome.started_ns])
        for event in events:
            if isinstance(event, ExecutorFailed):
                raise event.error
            if isinstance(event, ChildEnded):
                self._metrics.add("child_ends_total", label=event.cause)
        return True

    def _report(self, report: Report) -> None:
        report.task.reported = True
        if report.progress is not None:
            report.task.progress = report.progress
        self._long_tasks.report(report)

    def to_cancel(self, task: Task) -> None:
        """Note that a running task was asked to stop. It is answered ``CANCELLED``, even if it returns a result."""
        self._to_cancel.add(task)

    @property
    def cancelled_tasks(self) -> Collection[Task]:
        """Return the tasks that were asked to stop and are not answered yet."""
        return self._to_cancel

    def cancel(self, task: Task, owned: OwnedPartition) -> None:
        """Answer a task that was taken out of its queue with ``CANCELLED``."""
        owned.answering(task)
        sequence = self._format.sequence_of(task.record.value)
        self._answer_failure(Outcome(task, Verdict.CANCELLED, sequence, failure=_CANCELLED))

    def _measure(self, started: list[Outcome]) -> None:
        run_seconds = [outcome.run_seconds for outcome in started]
        self._metrics.observe("run_seconds", run_seconds)
        for verdict, count in Counter([outcome.verdict for outcome in started]).items():
            self._metrics.add("attempts_total", count, label=verdict.value)
        self._metrics.add("task_seconds_total", sum(run_seconds))
        self._metrics.add("task_cpu_seconds_total", sum([outcome.cpu_seconds for outcome in started]))
        self._dispatcher.duration.observe(len(started), sum(run_seconds))

    def _handle(self, outcome: Outcome, now: float) -> None:
        task = outcome.task
        task.progress, task.reported = None, False
        if self._stores_results:
            self._record_commit(outcome)
        if self._to_cancel and task in self._to_cancel:
            self._cancelled(outcome)
        moved = isinstance(task.claim, DetachedClaim) and not self._holder.reattach(task, task.claim)
        if outcome.verdict is not OK:
            self._excuse(outcome)
        if moved:
            if not self._holder.finished(outcome, self._answer):
                self._drop(outcome, "another process has taken the task over")
            return
        owned = self._assignment.owner_of(task)
        if outcome.verdict is OK and (owned is not None or self._guarantee.starts_once):
            if owned is not None:
                owned.answering(task)
            self._responder.ok(outcome)
        elif owned is not None:
            self._handle_owned(outcome, owned, now)
        elif self._guarantee.starts_once and outcome.started_ns:
            self._answer_failure(outcome)  # no other process will
        else:
            self._drop(outcome, "the lease has ended")

    def _record_commit(self, outcome: Outcome) -> None:
        """Record whether the store may have the result of this attempt although its commit failed."""
        for tasks in (self._maybe_stored, self._to_cancel):
            tasks.difference_update([task for task in tasks if not task.claim.valid and task is not outcome.task])
        if outcome.verdict is Verdict.NOT_STARTED:
            return
        if outcome.failure is None or outcome.failure.type != STORE_UNAVAILABLE:
            self._maybe_stored.discard(outcome.task)
        elif outcome.started_ns:
            self._maybe_stored.add(outcome.task)

    def _cancelled(self, outcome: Outcome) -> None:
        """Set the verdict of a task with a cancel request, unless the store has the result or may have it."""
        task = outcome.task
        if task in self._maybe_stored:
            return  # the next attempt finds out; otherwise it is cancelled too
        self._to_cancel.remove(task)
        if self._stores_results and outcome.verdict in (OK, Verdict.DONE):
            return
        outcome.verdict, outcome.failure, outcome.sent = Verdict.CANCELLED, _CANCELLED, ()
        outcome.sequence = outcome.sequence or self._format.sequence_of(task.record.value)

    def may_be_stored(self, owned: OwnedPartition, offset: int) -> bool:
        """Return whether the store may have a result of this request that was not answered yet."""
        return any(task.claim is owned.lease and task.offset == offset for task in self._maybe_stored)

    def _handle_owned(self, outcome: Outcome, owned: OwnedPartition, now: float) -> None:
        """Handle an attempt without a result, of a partition that is still ours."""
        task = outcome.task
        step = decide(outcome, task.attempt, self._policy)
        if isinstance(step, DeadLetter):
            _name_former_error(outcome, owned.starts.errors.get(task.offset))
        if isinstance(step, Retry) and not self._guarantee.starts_once:
            if task not in self._to_cancel:
                self._long_tasks.waits(task)
            owned.fail(task, outcome.failure.type if outcome.failure is not None else "")
            owned.requeue(task, now + step.after)
            self._task_log.retrying(outcome, step.after)
        elif isinstance(step, DeadLetter | Retry | Expire | Cancel):
            owned.answering(task)
            self._answer_failure(outcome)
        elif isinstance(step, Settle):
            owned.finish(task)
            owned.settle(task.record.offset)
            self._long_tasks.settled(task.claim, task.record.partition, task.record.offset)
        else:
            self._return(outcome, owned)

    def _answer(self, outcome: Outcome) -> None:
        if outcome.verdict is OK:
            self._responder.ok(outcome)
        else:
            self._answer_failure(outcome)

    def _excuse(self, outcome: Outcome) -> None:
        """Do not count an attempt whose process died after it had saved a checkpoint."""
        task, failure = outcome.task, outcome.failure
        died = failure is not None and failure.type == "ProcessDied" and outcome.started_ns > 0
        if died and not self._guarantee.starts_once:
            made = self._long_tasks.made_checkpoint(task)
            task.attempt = attempts_after(task.attempt, End.DIED, new_checkpoint=made)

    def _answer_failure(self, outcome: Outcome) -> None:
        if self._store is not None:
            self._store.without_result(outcome)
        if outcome.verdict is Verdict.EXPIRED:
            self._responder.fail(outcome, _failure_of(outcome), "EXPIRED")
        elif outcome.verdict in (Verdict.DROPPED, Verdict.CANCELLED):
            self._responder.fail(outcome, _failure_of(outcome), "CANCELLED")
        else:
            self._responder.dead_letter(outcome, _failure_of(outcome))

    def _return(self, outcome: Outcome, owned: OwnedPartition) -> None:
        """Requeue a task that did not start or was cancelled. That uses up no attempt."""
        task = outcome.task
        if outcome.verdict is Verdict.NOT_STARTED:
            owned.requeue(task)
        elif self._guarantee.starts_once:
            owned.answering(task)
            self._answer_failure(outcome)
        else:
            self._drop(outcome, "cancelled")
            self._long_tasks.waits(task)
            task.attempt = attempts_after(task.attempt, End.STOPPED)
            owned.requeue(task)

    def _drop(self, outcome: Outcome, reason: str) -> None:
        if outcome.started_ns:
            self._metrics.add("dropped_total")
            self._task_log.dropped(outcome, reason)


def _failure_of(outcome: Outcome) -> Failure:
    if outcome.failure is None:
        message = "an outcome without a result has a failure"
        raise AssertionError(message)
    return outcome.failure


def _name_former_error(outcome: Outcome, error: str | None) -> None:
    """Add the error type of an earlier attempt to the failure, because the death of a process explains little."""
    failure = outcome.failure
    if error and failure is not None and failure.type == "ProcessDied" != error:
        outcome.failure = failure._replace(message=f"{failure.message}; an earlier attempt ended with {error}")
