"""Detaches running tasks, answers them after their partitions have moved, and gives way to others. Poll thread only.

The rules are in ``worker.core.detached``. A process gives way while it runs a long task and other requests wait behind
it: the group then gives its partitions to other members. It takes partitions again when another task may start in it.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from worker.core.deadline import Deadline
from worker.core.detached import DetachedClaim, holder_of, mark_group, released_mark, settled_mark, view_of
from worker.core.model import OK
from worker.core.retry import End, Retry, RetryPolicy, Return, attempts_after, decide
from worker.executors.port import all_running
from worker.kafka.ports import KafkaFailure, Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.detached import GroupView
    from worker.core.model import Outcome, Task
    from worker.core.owned_partition import OwnedPartition
    from worker.executors.port import Executor, Running
    from worker.kafka.ports import Consumer, MemberView
    from worker.process.group_calls import GroupCalls
    from worker.process.long_tasks import LongTasks
    from worker.process.shared import Shared

REVOKED_SECONDS = 1.0  # the run time from which a task of a revoked partition is detached
SETTLED_SECONDS = 10.0  # since the last assignment, before a process gives way, so that one rebalance ends first
VIEW_SECONDS = 2.0  # the maximum age of a view of the group
VIEW_AGAIN = (1.0, 30.0)  # the first and the longest pause between two views, while no process can take the work
RETRY_SECONDS = 1.0  # between two attempts to reach the group's coordinator
RECORD_SECONDS = 10.0  # for the last record of a task that is released; then it is released without it
CHECK_SECONDS = 30.0  # between two checks whether a running detached task is still this process's

log = structlog.get_logger("detached")


class Holder:
    """The detached tasks of this process, from their detachment until they are settled elsewhere."""

    def __init__(
        self,
        shared: Shared,
        consumer: Consumer,
        executor: Executor,
        calls: GroupCalls,
        long_tasks: LongTasks,
    ) -> None:
        config = shared.config
        single = config.batch_size == 1 and not config.offset_store
        self.enabled = bool(config.state_topic) and single
        self._token = shared.token
        self._config = config
        self._guarantee = shared.guarantee
        self._consumer = consumer
        self._assignment = shared.assignment
        self._executor = executor
        self._calls = calls
        self._long_tasks = long_tasks
        self._metrics = shared.metrics
        self._clock = shared.clock
        self._least = min(config.long_after, REVOKED_SECONDS)
        self._policy = RetryPolicy(config.max_attempts, config.retry_first, config.retry_greatest)
        self._claims: list[DetachedClaim] = []
        self._running: dict[DetachedClaim, Task] = {}
        self._undone: list[tuple[DetachedClaim, OwnedPartition]] = []  # detachments that the last commit may contain
        self._idle_since = math.inf  # when the group was seen without any member that has partitions
        self._check_at = 0.0
        self._checking: set[DetachedClaim] = set()  # running tasks about which the coordinator was asked
        self._numbers = 0
        self._away = False  # this process has given way
        self._leaving = False  # this process drains
        self._gave_way_at = 0.0
        self._assigned_at = 0.0
        self._later: list[tuple[float, Callable[[], None]]] = []  # steps for which the coordinator has not replied yet
        self._changed_at = 0.0  # when partitions came or went
        self._revoked_at = -math.inf
        self._view: tuple[float, GroupView] | None = None  # the last view, and when it was requested
        self._view_requested = False
        self._view_at = 0.0  # when to request the next view
        self._view_pause = VIEW_AGAIN[0]

    @property
    def running(self) -> bool:
        """Return whether a detached task is running."""
        return bool(self._running)

    @property
    def busy(self) -> bool:
        """Return whether a detached task is running or its answer is not settled yet."""
        return bool(self._claims)

    def holds(self, holder: str) -> bool:
        """Return whether this process still has the task that commit metadata assign to this holder."""
        return any(claim.holder == holder for claim in self._claims)

    def assigned(self, now: float) -> None:
        """Record that partitions were assigned."""
        self._assigned_at = now
        self._expect_changes(now)

    def revoked(self, now: float) -> None:
        """Record that partitions were revoked, so another process takes them."""
        self._revoked_at = now
        self._expect_changes(now)

    def _expect_changes(self, now: float) -> None:
        self._changed_at = self._view_at = now
        self._view, self._view_pause = None, VIEW_AGAIN[0]

    # -- detaching

    def detach(self, owned: OwnedPartition, now: float) -> None:
        """Detach the running tasks of a revoked partition that have run for long enough, if that is possible now."""
        running = [one for one in self._outlasting() if owned.can_detach(one.task)]
        if not self.enabled or not running:
            return
        view = self._fresh_view(now)
        if view is not None and view.understands_detached(self._token):
            self._detach(owned, running[0], now)

    def _outlasting(self) -> list[Running]:
        """Return the tasks that a partition does not wait for."""
        return [one for one in all_running(self._executor) if one.seconds >= self._least]

    def _detach(self, owned: OwnedPartition, running: Running, now: float) -> None:
        task = running.task
        self._numbers += 1
        claim = DetachedClaim(owned.lease, task.record.offset, task.attempt, holder_of(self._token, self._numbers))
        owned.detach(task, claim.holder)
        task.claim = claim
        self._claims.append(claim)
        self._running[claim], self._check_at = task, now + CHECK_SECONDS
        self._long_tasks.detached(task)
        self._metrics.add("detached_total")
        log.info("task.detached", **claim.origin._asdict(), attempt=task.attempt, run=round(running.seconds, 3))

    def _fresh_view(self, now: float) -> GroupView | None:
        """Return a recent view of the group; None until the coordinator has described it."""
        if self._view is not None and now - self._view[0] <= VIEW_SECONDS:
            return self._view[1]
        if not self._view_requested and now >= self._view_at:
            self._view_requested, group = True, self._config.group
            self._view_at, self._view_pause = now + self._view_pause, min(VIEW_AGAIN[1], 2 * self._view_pause)
            self._calls.send(lambda client: client.members(group), lambda found: self._take_view(found, now))
        return None

    def _take_view(self, found: list[MemberView] | KafkaFailure, requested_at: float) -> None:
        self._view_requested = False
        if isinstance(found, KafkaFailure):
            log.warning("client.error", code=found.code, reason=found.message)
        elif requested_at >= self._changed_at:
            self._view = requested_at, view_of(found, self._config.request_topics)

    # -- giving way

    def serve(self, now: float, *, waiting: Callable[[Task], bool], leaving: bool) -> None:
        """Do one turn. ``waiting`` tells whether other work waits behind this running task."""
        if not self.enabled:
            return
        self._metrics.set("detached_tasks", len(self._claims))
        self._go_on(now)
        self._check_undone()
        self._check_claims(now)
        if self._away:
            if not leaving and (self._is_free() or self._nobody_works(now)):
                self._away, self._revoked_at = False, -math.inf
                self._consumer.take_part()
                log.info("process.took_part")
        elif self._should_leave(now) if leaving else self._should_give_way(now, waiting):
            self._give_way(now)

    def _give_way(self, now: float) -> None:
        if self._consumer.give_way(self._config.state_topic):
            self._away, self._gave_way_at = True, now
            self._idle_since = math.inf
            self._metrics.add("gave_way_total")
            log.info("process.gave_way", partitions=len(self._assignment))

    def _is_free(self) -> bool:
        """Return whether another task may start here: with an extra slot, also beside a detached one."""
        running = self._executor.running
        return running is None or not (running.task in self._running.values() or self._long_task())

    def _nobody_works(self, now: float) -> bool:
        """Return whether all members have given way and it is this one's turn to take the partitions back."""
        if now - self._gave_way_at < SETTLED_SECONDS:
            return False
        view = self._fresh_view(now)
        if view is None:
            return False
        if not (view.is_idle and view.counts(self._token)):
            self._idle_since = math.inf
            return False
        self._idle_since = min(self._idle_since, now)
        turn = sorted(view.tokens).index(self._token)  # those before it may be draining
        return now - self._idle_since >= turn * SETTLED_SECONDS

    def _long_task(self) -> Task | None:
        running = self._executor.running
        if running is None or not running.is_long(self._config.long_after) or not running.task.claim.valid:
            return None
        return running.task

    def _should_give_way(self, now: float, waiting: Callable[[Task], bool]) -> bool:
        task = self._long_task()
        if task is None or not len(self._assignment) or not waiting(task):
            return False
        if not all(running.is_long(self._config.long_after) for running in all_running(self._executor)):
            return False  # an extra slot becomes free soon
        if now - self._assigned_at < min(SETTLED_SECONDS, self._config.long_after):
            return False
        if any(owned.lease.leaving for owned in self._assignment):
            return False  # one rebalance at a time
        view = self._fresh_view(now)
        if view is None or not view.understands_detached(self._token):
            return False
        # A member that takes some of our partitions can take the others too. The view shows it without any until its
        # next heartbeat.
        taken = now - self._revoked_at < SETTLED_SECONDS and len(view.tokens) > 1
        return taken or view.can_take_work(self._token, len(self._assignment))

    def _should_leave(self, now: float) -> bool:
        """Return whether a draining process should give up its partitions early, because others are there."""
        if not self._leaving:
            self._leaving = True
            self._expect_changes(now)
        if not len(self._assignment) or not self._outlasting():
            return False
        if any(owned.lease.leaving for owned in self._assignment):
            return False  # one rebalance at a time
        view = self._fresh_view(now)
        return view is not None and view.understands_detached(self._token) and len(view.tokens) > 1

    # -- ending

    def reattach(self, task: Task, claim: DetachedClaim) -> bool:
        """Undo a detachment if the partition has not moved when the attempt ends. The task is then ordinary again."""
        self._running.pop(claim, None)
        owned = self._assignment.partitions.get(claim.partition)
        if owned is None or owned.lease is not claim.lease:
            return False
        owned.reattach(task)
        task.claim = claim.lease
        self._claims.remove(claim)
        self._undone.append((claim, owned))
        self._long_tasks.attached(claim.origin)
        return True

    def finished(self, outcome: Outcome, answer: Callable[[Outcome], None]) -> bool:
        """Handle the end of a detached task's attempt. ``answer`` delivers it. Return whether it is used."""
        claim = outcome.task.claim
        if not isinstance(claim, DetachedClaim) or not claim.valid:
            return False
        if outcome.verdict is OK or self._guarantee.starts_once:
            step = None
        else:
            step = decide(outcome, outcome.task.attempt, self._policy)
        if isinstance(step, Return):
            self._release(outcome.task, claim, attempts_after(outcome.task.attempt, End.STOPPED), 0.0)
        elif isinstance(step, Retry):
            self._release(outcome.task, claim, outcome.task.attempt, step.after)
        elif self._guarantee.transactional or self._guarantee.starts_once:
            answer(outcome)  # the transaction checks first, and no other process answers a task that starts only once
        else:
            self._look(claim, lambda: answer(outcome))
        return True

    def _release(self, task: Task, claim: DetachedClaim, attempts: int, after: float) -> None:
        """Leave the next attempt to the owner of the partition."""
        log.info("task.released", **claim.origin._asdict(), attempts=attempts)
        self._long_tasks.waits(task)
        mark = Position(*released_mark(claim, attempts, after))
        claim.leave()
        self._mark_released(claim, mark, Deadline.after(RECORD_SECONDS, self._clock()))

    def give_up(self) -> None:
        """Release the running tasks, because this process ends before they do. That uses up no attempt."""
        for claim, task in self._running.items():
            if claim.valid and not claim.leaving:
                self._release_at_once(claim, attempts_after(task.attempt, End.STOPPED))

    def gives_up(self, now: float) -> bool:
        """Return whether ``give_up`` is not finished yet."""
        self._calls.serve(now)
        self._go_on(now)
        return any(claim in self._claims for claim in self._running)

    def _release_at_once(self, claim: DetachedClaim, attempts: int) -> None:
        """Commit the mark without waiting for a checkpoint. The next attempt may start at once."""
        claim.leave()
        self._mark(claim, Position(*released_mark(claim, attempts, 0.0)))

    def _mark_released(self, claim: DetachedClaim, mark: Position, limit: Deadline) -> None:
        """Commit the mark once the topic has the last checkpoint, from which the owner's attempt resumes."""
        now = self._clock()
        if self._long_tasks.is_pending(claim.origin) and not limit.passed(now):
            self._later.append((now, lambda: self._mark_released(claim, mark, limit)))
            return
        self._long_tasks.attached(claim.origin)
        self._mark(claim, mark)

    def _go_on(self, now: float) -> None:
        """Repeat the steps for which the coordinator has not replied."""
        due, self._later = self._later, []
        for at, action in due:
            if at <= now:
                action()
            else:
                self._later.append((at, action))

    def _check_claims(self, now: float) -> None:
        """Finish claims whose answers were delivered, and check the running one."""
        for claim in [claim for claim in self._claims if claim.delivered or not claim.valid]:
            if not claim.valid:
                self._supersede(claim)
            elif self._guarantee.transactional:
                self._long_tasks.settled(claim, claim.partition, claim.offset)
                self._claims.remove(claim)  # the mark was committed with the answer
            elif not claim.leaving:
                claim.leave()
                self._mark(claim, Position(*settled_mark(claim)))
        if self._running and now >= self._check_at and not self._guarantee.starts_once:
            self._check_at = now + CHECK_SECONDS
            for claim in self._running:
                if not claim.lease.valid and claim not in self._checking:
                    self._check(claim)

    def _check_undone(self) -> None:
        """Commit a mark for a detachment that was undone, if the last commit of the ended lease may still name us."""
        for claim, owned in self._undone[:]:
            recorded = owned.committing or claim.offset in owned.committed_detached
            if recorded and owned.lease.valid:
                continue
            self._undone.remove((claim, owned))
            if not recorded:
                continue
            self._claims.append(claim)
            if self._guarantee.starts_once or (not self._guarantee.transactional and owned.is_settled(claim.offset)):
                claim.delivered = True  # _check_claims commits the mark
            else:
                self._release_at_once(claim, owned.starts.attempts.get(claim.offset, 0))

    def _supersede(self, claim: DetachedClaim) -> None:
        """Forget a task that another process has taken over. Its result is dropped, and the dispatcher cancels it."""
        self._claims.remove(claim)
        self._running.pop(claim, None)
        self._metrics.add("superseded_total")
        log.warning("task.superseded", **claim.origin._asdict())

    # -- the coordinator

    def _check(self, claim: DetachedClaim) -> None:
        """Stop a running task if the group's metadata no longer name this process. An error is left to the next check.

        Call it once per claim until the coordinator replies, so that calls do not add up while it is away.
        """
        group = self._config.group

        def take(found: Position | KafkaFailure | None) -> None:
            self._checking.remove(claim)
            if claim in self._running and not isinstance(found, KafkaFailure) and not claim.is_named_by(found):
                claim.end()

        self._checking.add(claim)
        self._calls.send(lambda client: client.committed(group, claim.partition, stable=False), take)

    def _look(self, claim: DetachedClaim, then: Callable[[], None]) -> None:
        """Run ``then`` if the group's metadata still name this process, as soon as the coordinator shows them."""
        group = self._config.group

        def take(found: Position | KafkaFailure | None) -> None:
            if isinstance(found, KafkaFailure):
                self._repeat(lambda: self._look(claim, then))
            elif claim.is_named_by(found):
                then()
            else:
                claim.end()

        self._calls.send(lambda client: client.committed(group, claim.partition, stable=False), take)

    def _mark(self, claim: DetachedClaim, mark: Position) -> None:
        """Commit a mark outside of a transaction, and repeat that until it is confirmed."""
        group = mark_group(self._config.group, claim.partition, claim.offset, claim.holder)

        def take(failure: KafkaFailure | None) -> None:
            if failure is not None:
                log.warning("commit.failed", code=failure.code, reason=failure.message)
                self._repeat(lambda: self._mark(claim, mark))
            elif claim in self._claims:
                self._claims.remove(claim)
                if claim.delivered:
                    self._long_tasks.settled(claim, claim.partition, claim.offset)

        self._calls.send(lambda client: client.commit(group, claim.partition, mark), take)

    def _repeat(self, action: Callable[[], None]) -> None:
        self._later.append((self._clock() + RETRY_SECONDS, action))
