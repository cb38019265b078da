"""The poll loop: sole owner of consumer, producer, lanes and commits.

One turn: obey orders, collect outcomes, hand tasks over, serve deliveries, commit, fetch, and then wait where the next
thing is most likely to come from: for the service thread while a task runs, for deliveries while answers are on their
way, for records when there is nothing else.

It leaves in this order: nothing new starts; what runs finishes while polling goes on; its answers are confirmed;
they are committed; the group is left.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from typing import TYPE_CHECKING

import structlog

from worker.core.assignment import Assignment
from worker.core.deadline import Deadline
from worker.core.flow import Fetch, Intake, Pace, has_its_share
from worker.core.lifecycle import Lifecycle, State
from worker.core.model import Verdict
from worker.core.retry import Again, Answer, Bury, RetryPolicy, decide
from worker.errors import ExitCode
from worker.process.answers import Answers
from worker.process.cell import Command
from worker.process.committer import Committer
from worker.process.rebalance import Rebalance
from worker.process.report import Report
from worker.process.service import ServiceDiedError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from worker.codec import AnswerEncoder
    from worker.core.lane import Lane
    from worker.core.model import Failure, Outcome
    from worker.handlers.context import Reason
    from worker.handlers.runner import Runner
    from worker.kafka.ports import Consumer, Producer
    from worker.metrics import Metrics
    from worker.process.cell import Cell
    from worker.process.config import ProcessConfig
    from worker.process.mailbox import Mailbox
    from worker.process.service import Service
    from worker.process.tasklog import TaskLog

IDLE_WAIT = 0.1  # seconds in the client's poll while there is nothing to do
BUSY_WAIT = 0.05  # seconds between turns while a task runs
FLUSH_WAIT = 0.01  # seconds at most for deliveries while nothing runs, before other things are looked at
DELIVERY_WAIT = 0.02  # the first of the growing waits for a delivery beside a running task: every turn costs it time
# Answers under way: more would only fill memory while the broker is away.
MAX_UNCONFIRMED = 10_000
MAX_UNCONFIRMED_BYTES = 32 * 1024 * 1024
CANCEL_GRACE = 5.0  # seconds a cancelled task has to return
SETTLE_LIMIT = 60.0  # seconds for the last answers and commits when leaving

log = structlog.get_logger("poller")


class Poller:
    """Runs one worker process until it is told to leave. Everything here happens on one thread."""

    def __init__(
        self,
        config: ProcessConfig,
        *,
        consumer: Consumer,
        producer: Producer,
        encoder: AnswerEncoder,
        runner: Runner,
        service: Service,
        mailbox: Mailbox,
        cell: Cell,
        metrics: Metrics,
        tasklog: TaskLog,
        hold: Callable[[], float],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lifecycle = Lifecycle()
        self.assignment = Assignment()
        self.drain_asked = False  # by a signal to this very process
        self._gave_up = False  # a running task was cancelled on the way out
        self._config = config
        self._consumer = consumer
        self._producer = producer
        self._runner = runner
        self._service = service
        self._mailbox = mailbox
        self._cell = cell
        self._metrics = metrics
        self._tasklog = tasklog
        self._hold_limit = hold
        self._clock = clock
        self._retry = RetryPolicy(config.max_attempts, config.retry_first, config.retry_greatest)
        self._pace = Pace()
        self._intake = Intake()
        self._handed = 0  # tasks the service has, those of ended leases included
        self._patience = DELIVERY_WAIT
        self._limit = Deadline()  # for leaving
        self._committer = Committer(consumer, self.assignment, metrics, clock)
        self._answers = Answers(config, producer, encoder, self._committer.settled, metrics, tasklog)
        self._rebalance = Rebalance(self.assignment, self._committer, metrics, self._hold, self._abandon)
        self._report = Report(cell, metrics, self.assignment)
        self._pid = os.getpid()

    # -- life

    def run(self) -> ExitCode:
        """Join the group and work until told to leave."""
        self._service.start()
        self._consumer.subscribe(self._config.request_topics, self._rebalance)
        self.lifecycle.to(State.JOINING)
        while not self._finished():
            self.turn()
        return self._leave()

    def turn(self) -> None:
        """One round of everything."""
        now = self._clock()
        self._stamp_and_obey(now)
        self._collect(now)
        self._answers.serve(0, now)
        self._committer.tick(now)
        waited = self._fetch(now)
        # Last: from here on the service thread has the interpreter, and this one only waits.
        self._hand_over(self._clock())
        if not waited:
            self._wait(now)

    def _finished(self) -> bool:
        if not self.lifecycle.leaving:
            return False
        settled = not (self._handed or self._answers.outstanding or self._committer.pending)
        return settled or self._limit.passed(self._clock())

    def _leave(self) -> ExitCode:
        cancelled = self._gave_up or self._handed > 0
        unsettled = self._answers.outstanding > 0 or self._committer.pending
        self.lifecycle.to(State.CLOSED)
        self.assignment.close(list(self.assignment.lanes))
        self._consumer.close()
        self._producer.close()
        self._publish()
        return ExitCode.DRAIN_TIMED_OUT if cancelled or unsettled else ExitCode.DRAINED

    # -- orders

    def _stamp_and_obey(self, now: float) -> None:
        self._cell.stamp(self._answers.answered, self.lifecycle.state, len(self.assignment.lanes), self._pid)
        self._metrics.add("polls_total")
        if self._report.due(now):
            self._publish()
        if not self._service.alive:
            message = "the service thread died"
            raise ServiceDiedError(message)
        command = self._cell.command()
        if command & Command.CANCEL:
            self._cancel_all(now)
        elif command & Command.DRAIN or self.drain_asked:
            self._drain()
        elif command & Command.START_TASKS and self.lifecycle.state is State.JOINING:
            self.lifecycle.to(State.RUNNING)
        if self.lifecycle.state is State.DRAINING and not self._handed and self._limit.at == float("inf"):
            # What is left to do is the broker's part, and it may be away.
            self._limit = Deadline.after(SETTLE_LIMIT, now)

    def _drain(self) -> None:
        if self.lifecycle.to(State.DRAINING):
            log.info("process.draining")
            self._service.closed = True

    def _cancel_all(self, now: float) -> None:
        self._service.closed = True
        if self.lifecycle.to(State.CANCELLING):
            self._limit = Deadline.after(CANCEL_GRACE, now)
            self._cancel("drain", list(self.assignment.lanes.values()))

    def _cancel(self, reason: Reason, lanes: Collection[Lane]) -> None:
        running = self._runner.running
        if running is not None and running[0].lane in lanes:
            log.warning("task.cancelling", reason=reason, partition=str(running[0].lane.partition))
            self._gave_up = self._gave_up or self.lifecycle.state is State.CANCELLING
            self._runner.cancel(reason, running[0])

    def _abandon(self, lane: Lane) -> None:
        self._cancel("revoked", (lane,))

    # -- work

    def _collect(self, now: float) -> None:
        outcomes = self._mailbox.take()
        if not outcomes:
            return
        self._patience = DELIVERY_WAIT
        self._handed -= len(outcomes)
        for outcome in outcomes:
            self._judge(outcome, now)
        self._measure([outcome for outcome in outcomes if outcome.started_ns])

    def _measure(self, started: list[Outcome]) -> None:
        run_seconds = [outcome.run_seconds for outcome in started]
        self._metrics.observe("run_seconds", run_seconds)
        for verdict, count in Counter([outcome.verdict for outcome in started]).items():
            self._metrics.add("attempts_total", count, label=verdict.value)
        self._metrics.add("task_seconds_total", sum(run_seconds))
        self._metrics.add("task_cpu_seconds_total", sum([outcome.cpu_seconds for outcome in started]))
        self._pace.observe(len(started), sum(run_seconds))

    def _judge(self, outcome: Outcome, now: float) -> None:
        """Decide what follows an outcome, and do it."""
        task = outcome.task
        lane = task.lane
        if not lane.open:
            lane.done()
            self._drop(outcome, "the lease has ended")
            return
        step = decide(outcome, task.attempt, self._retry)
        if isinstance(step, Answer):
            lane.done()
            self._answers.ok(outcome)
        elif isinstance(step, Bury):
            lane.done()
            self._answers.bury(outcome, _failure_of(outcome))
        elif isinstance(step, Again):
            lane.put_back(task, now + step.after)
            self._tasklog.retrying(outcome, step.after)
        else:
            lane.put_back(task)
            if outcome.verdict is Verdict.DROPPED:
                self._drop(outcome, "cancelled")

    def _drop(self, outcome: Outcome, reason: str) -> None:
        if outcome.started_ns:
            self._metrics.add("dropped_total")
            self._tasklog.dropped(outcome, reason)

    def _hand_over(self, now: float) -> None:
        """Keep the service supplied: one task that runs and one that waits, or, of short ones, a chunk at a time.

        Short tasks go in lockstep, chunk after chunk: two threads at once would only fight for the interpreter lock,
        and every delivery report has to take it.
        """
        answers = self._answers
        if answers.outstanding >= MAX_UNCONFIRMED or answers.outstanding_bytes >= MAX_UNCONFIRMED_BYTES:
            return
        if not self.lifecycle.may_start:
            return
        chunk = self._pace.chunk()
        while self._handed < (2 if chunk == 1 else 1):
            tasks = self.assignment.take(chunk, now)
            if not tasks:
                return
            self._handed += len(tasks)
            self._service.hand_over(tasks)

    # -- fetching and waiting

    def _fetch(self, now: float) -> bool:
        """Take records if there is room, waiting if there is nothing else to do. False: a wait is still due."""
        idle = not self._handed and not self._answers.outstanding
        running = self._runner.running
        if running is not None:
            self._pace.running(running[1])
        startable, startable_bytes = self.assignment.startable(now)
        fetch = self._intake.decide(
            ahead=startable + max(0, self._handed - 1),
            ahead_bytes=startable_bytes,
            buffer=self._pace.buffer(),
            idle=idle,
            closed=self.lifecycle.leaving,
            now=now,
        )
        self._apply_pause(fetch, idle=idle, now=now)
        if fetch.limit is None:
            return False
        timeout = min(IDLE_WAIT, self._next_due(now)) if idle else 0.0
        records = self._consumer.poll(fetch.limit, timeout)
        if records:
            self._metrics.add("records_total", len(records))
            self._metrics.add("record_bytes_total", self.assignment.admit(records))
        return idle

    def _apply_pause(self, fetch: Fetch, *, idle: bool, now: float) -> None:
        """Pause and resume single partitions, once per change."""
        wanted = {lane: self._to_pause(lane, fetch, idle=idle, now=now) for lane in self.assignment.lanes.values()}
        pause = [lane for lane, paused in wanted.items() if paused and not lane.paused]
        resume = [lane for lane, paused in wanted.items() if lane.paused and not paused]
        if pause:
            self._consumer.pause([lane.partition for lane in pause])
            self._metrics.add("pauses_total", len(pause))
        if resume:
            self._consumer.resume([lane.partition for lane in resume])
        for lane in (*pause, *resume):
            lane.paused = wanted[lane]

    def _to_pause(self, lane: Lane, fetch: Fetch, *, idle: bool, now: float) -> bool:
        if self.lifecycle.leaving:
            return True
        if not fetch.paused and not lane.waits(now):
            return False
        running = self._runner.running
        waiting = len(lane.queue) + lane.handed - (running is not None and running[0].lane is lane)
        buffer = max(self._pace.buffer(), 1) if idle else self._pace.buffer()
        return has_its_share(waiting, lane.queued_bytes, buffer=buffer, lanes=len(self.assignment.lanes))

    def _next_due(self, now: float) -> float:
        """Seconds until something is due by the clock."""
        due = min(self._answers.next_repeat(), self.assignment.next_ready() if self.lifecycle.may_start else now + 1)
        return max(0.001, due - now)

    def _wait(self, now: float) -> None:
        if not self._handed and self._answers.under_way:
            # Nothing will join these answers: send them now, without lingering.
            self._answers.serve(FLUSH_WAIT, now)
        elif self._answers.outstanding:
            self._mailbox.wait(self._patience)
            self._patience = min(BUSY_WAIT, self._patience * 2)
        else:
            self._mailbox.wait(BUSY_WAIT)

    # -- rebalance: called by the listener, inside the consumer's poll

    def _hold(self, lanes: Sequence[Lane]) -> None:
        """Go on with everything but polling until nothing of ``lanes`` is under way, or their time is up."""
        for task in self._service.recall(lanes):
            self._handed -= 1
            task.lane.put_back(task)
        if not any(lane.busy for lane in lanes):
            return
        limit = self._hold_limit()
        log.info("partitions.holding", partitions=[str(lane.partition) for lane in lanes if lane.busy], limit=limit)
        deadline, cancelled = Deadline.after(limit, self._clock()), False
        while any(lane.busy for lane in lanes):
            now = self._clock()
            self._stamp_and_obey(now)
            if cancelled and deadline.passed(now):
                return
            if not cancelled and (deadline.passed(now) or self.lifecycle.state is State.CANCELLING):
                deadline, cancelled = Deadline.after(CANCEL_GRACE, now), True
                self._cancel("revoked", lanes)
            self._collect(now)
            self._answers.serve(0, now)
            self._committer.commit_now(self.assignment.lanes.values())
            self._hand_over(now)
            self._wait(now)

    def _publish(self) -> None:
        self._report.publish(
            self._clock(),
            self.lifecycle.state,
            running=self._runner.running,
            unconfirmed=self._answers.outstanding,
            protocol=getattr(self._consumer, "protocol", ""),
        )


def _failure_of(outcome: Outcome) -> Failure:
    if outcome.failure is None:
        message = "a buried outcome has a failure"
        raise AssertionError(message)
    return outcome.failure
