"""What follows a start: an answer, another attempt, the dead letters, or nothing at all."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from worker.core.model import OK, Verdict
from worker.core.retry import Again, Bury, Close, Refuse, RetryPolicy, decide

if TYPE_CHECKING:
    from worker.core.model import Failure, Outcome
    from worker.metrics import Metrics
    from worker.process.committer import Committer
    from worker.process.config import ProcessConfig
    from worker.process.feed import Feed
    from worker.process.mailbox import Mailbox
    from worker.process.settlement import Settlement
    from worker.process.stored import StoreDesk
    from worker.process.tasklog import TaskLog


class Outcomes:
    """Takes what the service has posted and does what follows from it. Poll thread."""

    def __init__(
        self,
        config: ProcessConfig,
        mailbox: Mailbox,
        feed: Feed,
        answers: Settlement,
        committer: Committer,
        store: StoreDesk | None,
        metrics: Metrics,
        tasklog: TaskLog,
    ) -> None:
        self._mailbox = mailbox
        self._feed = feed
        self._answers = answers
        self._committer = committer
        self._store = store
        self._metrics = metrics
        self._tasklog = tasklog
        self._retry = RetryPolicy(config.max_attempts, config.retry_first, config.retry_greatest)
        # What was started once must not be started again, whatever became of it, and nobody else will answer it.
        self._once = config.guarantee == "at-most-once"

    def collect(self, now: float) -> bool:
        """Deal with all that was posted so far; False if that was nothing."""
        outcomes = self._mailbox.take()
        if not outcomes:
            return False
        self._feed.handed -= len(outcomes)
        for outcome in outcomes:
            self._judge(outcome, now)
        self._measure([outcome for outcome in outcomes if outcome.started_ns])
        return True

    def _measure(self, started: list[Outcome]) -> None:
        run_seconds = [outcome.run_seconds for outcome in started]
        self._metrics.observe("run_seconds", run_seconds)
        for verdict, count in Counter([outcome.verdict for outcome in started]).items():
            self._metrics.add("attempts_total", count, label=verdict.value)
        self._metrics.add("task_seconds_total", sum(run_seconds))
        self._metrics.add("task_cpu_seconds_total", sum([outcome.cpu_seconds for outcome in started]))
        self._feed.pace.observe(len(started), sum(run_seconds))

    def _judge(self, outcome: Outcome, now: float) -> None:
        """Decide what follows an outcome, and do it."""
        task = outcome.task
        lane = task.lane
        if not lane.open and not self._once:
            lane.done(task)
            self._drop(outcome, "the lease has ended")
            return
        if outcome.verdict is OK:
            lane.done(task)
            self._answers.ok(outcome)
            return
        step = decide(outcome, task.attempt, self._retry)
        if isinstance(step, Again) and not self._once:
            lane.failed(task)
            lane.put_back(task, now + step.after)
            self._tasklog.retrying(outcome, step.after)
        elif isinstance(step, Bury | Again | Refuse):
            lane.done(task)
            self._answer_without_result(outcome, buried=not isinstance(step, Refuse))
        elif isinstance(step, Close):
            lane.done(task)
            self._committer.settled(lane, task.record.offset)
        else:
            self._forget(outcome)

    def _answer_without_result(self, outcome: Outcome, *, buried: bool) -> None:
        if self._store is not None:
            self._store.without_result(outcome)
        if buried:
            self._answers.bury(outcome, _failure_of(outcome))
        else:
            self._answers.refuse(outcome, _failure_of(outcome), "EXPIRED")

    def _forget(self, outcome: Outcome) -> None:
        """It was not started, or cancelled: that uses up no attempt."""
        task = outcome.task
        if outcome.verdict is Verdict.NOT_STARTED:
            task.lane.put_back(task)
        elif self._once:
            task.lane.done(task)
            self._answers.refuse(outcome, _failure_of(outcome), "CANCELLED")
        else:
            task.attempt -= 1
            task.lane.put_back(task)
            self._drop(outcome, "cancelled")

    def _drop(self, outcome: Outcome, reason: str) -> None:
        if outcome.started_ns:
            self._metrics.add("dropped_total")
            self._tasklog.dropped(outcome, reason)


def _failure_of(outcome: Outcome) -> Failure:
    if outcome.failure is None:
        message = "a buried outcome has a failure"
        raise AssertionError(message)
    return outcome.failure
