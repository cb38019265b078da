"""Gives tasks to the executor, requests their starts, and cancels them. Used on the poll thread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from worker.core.dispatch import rule_for_batches, rule_for_singles
from worker.core.flow import TaskDuration
from worker.executors.port import all_running, running_tasks
from worker.process.responder import is_full

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from worker.core.claim import Claim
    from worker.core.dispatch import DispatchRule
    from worker.core.limits import Reason
    from worker.core.model import Task
    from worker.executors.port import Executor
    from worker.process.committer import Committer
    from worker.process.responder import Responder
    from worker.process.shared import Shared
    from worker.process.store_bridge import StoreBridge


log = structlog.get_logger("dispatcher")


class Dispatcher:
    """Supply the executor with just enough tasks."""

    def __init__(
        self,
        shared: Shared,
        executor: Executor,
        responder: Responder,
        committer: Committer,
        prepare: Callable[[Sequence[Task]], None] | None,
        store: StoreBridge | None = None,
    ) -> None:
        """``prepare`` is called with the tasks that are about to be submitted."""
        self.in_flight = 0  # tasks the executor has, including those whose claim has ended
        self.duration = TaskDuration()
        self.gave_up = False  # a task was cancelled because the process is leaving
        self._config = shared.config
        self._guarantee = shared.guarantee
        self._assignment = shared.assignment
        self._executor = executor
        self._responder = responder
        self._committer = committer
        self._lifecycle = shared.lifecycle
        self._metrics = shared.metrics
        self._prepare = prepare
        self._store = store
        self._dispatched_at = -math.inf
        self._gathering_since: float | None = None  # when the first task of a batch was ready
        self.cancelled: dict[
            Task, float
        ] = {}  # running tasks, or first tasks of batches, that have to end -> since when
        self._requested: set[Task] = set()  # running tasks that were cancelled on request

    @property
    def in_slot(self) -> int:
        """Return the number of tasks that must end before another one starts.

        They are all but those beside which others run. A crash suspect runs beside long tasks only, so that after
        another crash few can be blamed.
        """
        beside = self._executor.beside
        if beside and any(owned.has_suspect for owned in self._assignment):
            beside = [running for running in beside if running.is_long(self._config.long_after)]
        return self.in_flight - len(beside)

    # -- dispatching

    def dispatch(self, now: float) -> None:
        """Submit the next chunk when only one task is left, or none if tasks are very short."""
        self._dispatched_at = now
        if not self._lifecycle.may_start or is_full(self._responder):
            return
        if self._config.commit_mode == "sync" and (self._committer.in_flight or self._responder.busy):
            return
        if self._store is not None and self._store.waits:
            return
        rule = self._rule(now)
        if self._config.batch_size > 1 and not self._batch_is_due(rule, now):
            return
        while (in_slot := self.in_slot) < rule.ahead:
            tasks = self._assignment.take(rule, now, in_flight=in_slot)
            if not tasks:
                break
            self._submit(tasks)
        self._assignment.request_starts(rule, now, in_flight=self.in_slot)

    def _rule(self, now: float) -> DispatchRule:
        config = self._config
        counted = self._guarantee.starts_once
        unlimited = not counted and self._committer.starts_are_overdue(now)  # the broker is unavailable
        if config.batch_size > 1:
            return rule_for_batches(
                size=config.batch_size,
                one_partition=config.batch_per_partition,
                unlimited=unlimited,
                strict=config.max_attempts == 1,
            )
        return rule_for_singles(
            chunk=self.duration.chunk(),
            seconds=self.duration.seconds,
            round_trip=self._committer.round_trip,
            idle=not self.in_slot and not counted,
            strict=config.max_attempts == 1,
            unlimited=unlimited,
            apart=config.isolation == "process",
        )

    def _batch_is_due(self, rule: DispatchRule, now: float) -> bool:
        """Return whether a batch is full or has waited long enough, and all its tasks may start."""
        size = self._config.batch_size
        ready = self._assignment.ready(now, one_partition=self._config.batch_per_partition, outage=rule.unlimited)
        if not ready:
            self._gathering_since = None
            return False
        if self._gathering_since is None:
            self._gathering_since = now
        if ready < size and now - self._gathering_since < self._config.batch_wait:
            return False
        self._assignment.request_starts(rule, now, in_flight=self.in_slot)
        return rule.unlimited or not self._assignment.waits_for_commit

    def _submit(self, tasks: list[Task]) -> None:
        if self._config.peek:
            row = [task.record for task in tasks] + self._assignment.peek(self._config.peek)
            for at, task in enumerate(tasks, 1):
                task.upcoming = tuple(row[at : at + self._config.peek])
        if self._prepare is not None:
            self._prepare(tasks)
        self._gathering_since = None
        self.in_flight += len(tasks)
        for task in tasks if self.cancelled or self._requested else ():
            self.cancelled.pop(task, None)  # of an earlier attempt
            self._requested.discard(task)
        self._executor.submit(tasks)

    def next_due(self) -> float:
        """Return when a task may start by the clock; infinity if none waits for it.

        A task that was due at the last dispatch and has not started waits for something else, such as a commit.
        """
        due = self._assignment.next_ready()
        if due <= self._dispatched_at:
            due = math.inf
        if self._gathering_since is None:
            return due
        gathered = self._gathering_since + self._config.batch_wait
        return due if gathered <= self._dispatched_at else min(due, gathered)

    # -- taking back

    def withdraw(self, claims: Collection[Claim]) -> None:
        """Take back the tasks under these claims that the executor has not started."""
        for task in self._executor.withdraw(claims):
            self.in_flight -= 1
            owned = self._assignment.owner_of(task)
            if owned is not None:
                owned.requeue(task)

    def cancel(self, reason: Reason, now: float, claims: Collection[Claim] | None = None) -> None:
        """Cancel the running tasks with one of these claims (None: any). Call it on every turn."""
        for task in self._executor.cancel(reason, claims):
            self.gave_up = self.gave_up or reason == "drain"
            self._report(task, reason, now)

    def cancel_task(self, task: Task) -> bool:
        """Cancel this task on request. Return False if it is not running."""
        if not self._executor.cancel_task(task, "requested"):
            return False
        if task not in self._requested:
            self._requested = self._requested.intersection(running_tasks(self._executor)) | {task}
            self._announce(task, "requested")
        return True

    def check(self, now: float) -> None:
        """Cancel running tasks whose deadline or time limit has passed, or whose claim has ended."""
        for task, reason in self._executor.check():
            self._report(task, reason, now)
        if not self.in_flight:
            return
        ended = [task.claim for one in all_running(self._executor) for task in one.tasks if not task.claim.valid]
        if ended:
            self.cancel("revoked", now, ended)

    def _report(self, task: Task, reason: Reason, now: float) -> None:
        if task in self.cancelled:
            return
        running = {task for one in all_running(self._executor) for task in (one.task, *one.tasks)}
        self.cancelled = {task: at for task, at in self.cancelled.items() if task in running} | {task: now}
        self._announce(task, reason)

    def _announce(self, task: Task, reason: Reason) -> None:
        self._metrics.add("cancellations_total", label=reason)
        record = task.record
        log.warning("task.cancelling", reason=reason, partition=str(record.partition), offset=record.offset)

    def is_blocked(self, now: float) -> bool:
        """Return whether a given-up task, which ignored its cancellation, still occupies the executor."""
        ended = [one.task for one in all_running(self._executor) if not all(task.claim.valid for task in one.tasks)]
        return any(now - self.cancelled.get(task, now) >= self._config.cancel_wait for task in ended)
