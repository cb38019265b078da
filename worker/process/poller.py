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
from typing import TYPE_CHECKING, cast

import structlog

from worker.core.assignment import Assignment
from worker.core.deadline import Deadline
from worker.core.lifecycle import Lifecycle, State
from worker.errors import ExitCode
from worker.process.answers import Answers
from worker.process.cell import Command
from worker.process.committer import Committer
from worker.process.feed import PERMIT_WAIT, Feed
from worker.process.outcomes import Outcomes
from worker.process.rebalance import Rebalance
from worker.process.report import Report
from worker.process.service import ServiceDiedError
from worker.process.stored import StoreDesk
from worker.process.transactions import Transactions

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

    from worker.codec import AnswerEncoder
    from worker.core.lane import Lane
    from worker.core.model import Partition
    from worker.handlers.batch import BatchRunner
    from worker.handlers.context import Reason
    from worker.handlers.runner import Runner
    from worker.kafka.ports import Consumer, Producer
    from worker.metrics import Metrics
    from worker.process.cell import Cell
    from worker.process.config import ProcessConfig
    from worker.process.courier import Courier
    from worker.process.mailbox import Mailbox
    from worker.process.service import Service
    from worker.process.settlement import Settlement
    from worker.process.tasklog import TaskLog
    from worker.stores.port import OffsetStore

BUSY_WAIT = 0.05  # seconds between turns while a task runs
FLUSH_WAIT = 0.01  # seconds at most for deliveries while nothing runs, before other things are looked at
DELIVERY_WAIT = 0.02  # the first of the growing waits for a delivery beside a running task: every turn costs it time
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
        writer: Producer | Courier,
        encoder: AnswerEncoder,
        runner: Runner | BatchRunner,
        service: Service,
        mailbox: Mailbox,
        cell: Cell,
        metrics: Metrics,
        tasklog: TaskLog,
        hold: Callable[[], float],
        store: OffsetStore | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.lifecycle = Lifecycle()
        self.assignment = Assignment(config.ordering, batches=config.batch_size > 1)
        self.drain_asked = False  # by a signal to this very process
        self._gave_up = False  # a running task was cancelled on the way out
        self._config = config
        self._consumer = consumer
        self._runner = runner
        self._service = service
        self._mailbox = mailbox
        self._cell = cell
        self._metrics = metrics
        self._hold_limit = hold
        self._clock = clock
        self._patience = DELIVERY_WAIT
        self._limit = Deadline()  # for leaving
        self._committer = Committer(config, consumer, self.assignment, metrics, clock)
        self._store = StoreDesk(store, self._committer.settled) if store is not None else None
        self._answers, self._close_writer = self._settlement(writer, encoder, tasklog)
        self._committer.busy = lambda: self._answers.busy
        self._feed = Feed(
            config,
            consumer,
            self.assignment,
            service,
            runner,
            self._answers,
            self._committer,
            self.lifecycle,
            metrics,
        )
        self._outcomes = Outcomes(
            config, mailbox, self._feed, self._answers, self._committer, self._store, metrics, tasklog
        )
        self._rebalance = Rebalance(
            self.assignment,
            self._committer,
            metrics,
            self._hold,
            self._abandon,
            self._decide,
            self._answers.joined,
            self._begin,
        )
        self._report = Report(cell, metrics, self.assignment)
        self._pid = os.getpid()

    def _settlement(
        self, writer: Producer | Courier, encoder: AnswerEncoder, tasklog: TaskLog
    ) -> tuple[Settlement, Callable[[], None]]:
        """How answers are written, and what frees the client that writes them."""
        config, metrics = self._config, self._metrics
        if config.guarantee != "exactly-once":
            producer = cast("Producer", writer)
            settled = self._store.settled if self._store is not None else self._committer.settled
            answers = Answers(config, producer, encoder, settled, metrics, tasklog)
            return answers, producer.close
        courier = cast("Courier", writer)
        return (
            Transactions(
                config,
                courier,
                encoder,
                self._consumer,
                self._committer,
                lambda: list(self.assignment.lanes.values()),
                metrics,
                tasklog,
                self._clock,
            ),
            courier.close,
        )

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
        if self._outcomes.collect(now):
            self._patience = DELIVERY_WAIT
            if self._answers.under_way and not (self._feed.handed or self.assignment.startable(now)[0]):
                self._wait(now)  # before anything else: somebody may be waiting for this one answer
                now = self._clock()
        if self._feed.handed:
            self._feed.hand_over(now)  # first of all: what runs may be the last that the service has
        self._answers.serve(0, now)
        self._feed.ask(now)
        self._committer.tick(now)
        waited = self._feed.fetch(now)
        # Last: from here on the service thread has the interpreter, and this one only waits.
        now = self._clock()
        self._feed.hand_over(now)
        self._committer.tick(now)
        if not waited:
            self._wait(now)

    def _finished(self) -> bool:
        if not self.lifecycle.leaving:
            return False
        settled = not (self._feed.handed or self._answers.outstanding or self._committer.pending)
        return settled or self._limit.passed(self._clock())

    def _leave(self) -> ExitCode:
        cancelled = self._gave_up or self._feed.handed > 0
        unsettled = self._answers.outstanding > 0 or self._committer.pending
        self.lifecycle.to(State.CLOSED)
        self.assignment.close(list(self.assignment.lanes))
        self._consumer.close()
        self._close_writer()
        self._publish()
        return ExitCode.DRAIN_TIMED_OUT if cancelled or unsettled else ExitCode.DRAINED

    # -- orders

    def _stamp_and_obey(self, now: float) -> None:
        self._cell.stamp(self._answers.answered, self.lifecycle.state, len(self.assignment.lanes), self._pid)
        self._metrics.add("polls_total")
        if self._report.due(now):
            self._publish()
        self._runner.expire()
        if not self._service.alive:
            message = "the service thread died"
            raise ServiceDiedError(message)
        command = self._cell.command()
        if command & Command.CANCEL:
            self._cancel_all(now)
        elif command & Command.DRAIN or self.drain_asked or self._consumer.stale:
            self._drain()
        elif command & Command.START_TASKS and self.lifecycle.state is State.JOINING:
            self.lifecycle.to(State.RUNNING)
            log.info("process.ready", protocol=self._protocol)
        if self.lifecycle.state is State.DRAINING and not self._feed.handed and self._limit.at == float("inf"):
            # What is left to do is the broker's part, and it may be away.
            self._limit = Deadline.after(SETTLE_LIMIT, now)

    def _drain(self) -> None:
        if self.lifecycle.to(State.DRAINING):
            log.info("process.draining")
            self._service.closed = True
            self._committer.leaving = True

    def _cancel_all(self, now: float) -> None:
        self._service.closed = self._committer.leaving = True
        if self.lifecycle.to(State.CANCELLING):
            self._limit = Deadline.after(CANCEL_GRACE, now)
            self._cancel("drain", list(self.assignment.lanes.values()))

    def _cancel(self, reason: Reason, lanes: Collection[Lane]) -> None:
        task = self._runner.cancel(reason, lanes)
        if task is not None:
            log.warning("task.cancelling", reason=reason, partition=str(task.lane.partition))
            self._gave_up = self._gave_up or self.lifecycle.state is State.CANCELLING

    def _abandon(self, lane: Lane) -> None:
        self._cancel("revoked", (lane,))

    # -- work

    def _wait(self, now: float) -> None:
        soon = not self._feed.handed and self._committer.in_flight  # a task may wait for that, and only a poll tells
        if not self._feed.handed and self._answers.under_way:
            # Nothing will join these answers: send them now, without lingering.
            self._answers.serve(PERMIT_WAIT if soon else FLUSH_WAIT, now)
        elif soon:
            self._mailbox.wait(PERMIT_WAIT)
        elif self._answers.outstanding:
            self._mailbox.wait(self._patience)
            self._patience = min(BUSY_WAIT, self._patience * 2)
        else:
            self._mailbox.wait(BUSY_WAIT)

    # -- rebalance: called by the listener, inside the consumer's poll

    def _hold(self, lanes: Sequence[Lane]) -> None:
        """Go on with everything but polling until nothing of ``lanes`` is under way, or their time is up."""
        self._feed.recall(lanes)
        if any(lane.busy for lane in lanes):
            self._hold_busy(lanes)
        self._answers.settle_down()

    def _hold_busy(self, lanes: Sequence[Lane]) -> None:
        limit = self._hold_limit()
        log.info("partitions.holding", partitions=[str(lane.partition) for lane in lanes if lane.busy], limit=limit)
        deadline, cancelled = Deadline.after(limit, self._clock()), False
        while any(lane.busy for lane in lanes):
            now = self._clock()
            self._stamp_and_obey(now)
            if (cancelled and deadline.passed(now)) or self._limit.passed(now):
                return
            if not cancelled and (deadline.passed(now) or self.lifecycle.state is State.CANCELLING):
                deadline, cancelled = Deadline.after(CANCEL_GRACE, now), True
                self._cancel("revoked", lanes)
            self._outcomes.collect(now)
            self._answers.serve(0, now)
            if self._answers.expelled:  # we would be told by a poll, and do not poll
                self._rebalance.lost(list(self.assignment.lanes))
                return
            self._committer.commit_now(self.assignment.lanes.values(), working=True)
            self._feed.hand_over(now)
            self._wait(now)

    def _decide(self) -> None:
        """Wait until it is known what became of the transaction under way, or leaving takes too long."""
        while not self._answers.decided(BUSY_WAIT, self._clock()) and not self._limit.passed(self._clock()):
            self._stamp_and_obey(self._clock())
            self._outcomes.collect(self._clock())

    def _begin(self, partitions: Sequence[Partition]) -> dict[Partition, int]:
        """Where to begin instead of the committed offsets."""
        self._publish()  # what was counted as lost just now must not be lost with this process
        if self._store is None:
            return {}
        return self._store.begin(partitions, self.assignment.lanes, self._answers.ok)

    @property
    def _protocol(self) -> str:
        return getattr(self._consumer, "protocol", "")

    def _publish(self) -> None:
        self._report.publish(
            self._clock(),
            self.lifecycle.state,
            running=self._runner.running,
            unconfirmed=self._answers.outstanding,
            protocol=self._protocol,
        )
