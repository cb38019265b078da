"""The main loop of a worker process: a list of phases that one thread runs in turn.

Only this thread uses the Kafka clients. It waits where the next event is most likely: for the executor while a task
runs, for deliveries while answers are under way, and otherwise for records.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from worker.core.lifecycle import State
from worker.process.status_block import Command

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.errors import ExitCode
    from worker.executors.mailbox import Mailbox
    from worker.executors.port import Executor
    from worker.kafka.ports import Consumer
    from worker.process.committer import Committer
    from worker.process.dispatcher import Dispatcher
    from worker.process.fetcher import Fetcher
    from worker.process.leaving import Leaving
    from worker.process.rebalance import Rebalance
    from worker.process.responder import Responder
    from worker.process.results import ResultHandler
    from worker.process.shared import Shared
    from worker.process.snapshot import Snapshots
    from worker.process.status_block import StatusBlock

BUSY_WAIT = 0.05  # seconds between turns while a task runs
FLUSH_WAIT = 0.01  # the longest wait for deliveries while no task runs, before the loop checks other things
DELIVERY_WAIT = 0.02  # the first of the growing waits for a delivery beside a running task

Phase = Callable[[float], None]  # a part of every turn; its argument is the time

log = structlog.get_logger("loop")


class MainLoop:
    """Run one worker process until it has to leave. Everything here happens on one thread."""

    def __init__(
        self,
        shared: Shared,
        status: StatusBlock,
        *,
        consumer: Consumer,
        executor: Executor,
        mailbox: Mailbox,
        dispatcher: Dispatcher,
        results: ResultHandler,
        responder: Responder,
        committer: Committer,
        rebalance: Rebalance,
        fetcher: Fetcher,
        leaving: Leaving,
        before_dispatch: Sequence[Phase],
        before_commit: Sequence[Phase],
        after_commit: Sequence[Phase],
        snapshots: Snapshots,
    ) -> None:
        """The phases in ``before_…`` and ``after_…`` are those of features that are on."""
        self.lifecycle = shared.lifecycle
        self.assignment = shared.assignment
        self.drain_requested = False  # by a signal to this process
        self._config, self._status, self._clock = shared.config, status, shared.clock
        self._consumer, self._executor, self._mailbox = consumer, executor, mailbox
        self._dispatcher, self._results, self._responder = dispatcher, results, responder
        self._committer, self._rebalance, self._fetcher, self._leaving = committer, rebalance, fetcher, leaving
        self._snapshots, self._metrics = snapshots, shared.metrics
        self._pid = os.getpid()
        self._collected = self._went_on = False  # results came in this turn; the fetch phase waited or brought records
        self._delivery_wait = DELIVERY_WAIT
        self._phases: tuple[Phase, ...] = (
            self._report,
            self._obey,
            *before_dispatch,
            self._collect,
            dispatcher.dispatch,
            self._deliver,
            *before_commit,
            self._commit,
            *after_commit,
            self._release,
            self._fetch,
            self._wait,
        )

    def run(self) -> ExitCode:
        """Join the group and work until the process has to leave."""
        self._executor.start()
        self._consumer.subscribe(self._config.request_topics, self._rebalance, self._committer)
        self.lifecycle.to(State.JOINING)
        while not (self.lifecycle.leaving and self._leaving.finished):
            self.turn()
        code = self._leaving.leave()
        if not self._consumer.member_id:
            # Now the supervisor knows that this process has left the group.
            self._status.stamp(self._responder.answered, self.lifecycle.state, 0, self._pid)
        return code

    @property
    def membership(self) -> dict[str, str]:
        """Return what the supervisor needs to remove this process from the group."""
        return {"protocol": self._consumer.protocol, "member": self._consumer.member_id}

    def turn(self) -> None:
        """Run every phase once."""
        for phase in self._phases:
            phase(self._clock())

    # -- phases

    def _report(self, now: float) -> None:
        """Show the supervisor that this process is alive."""
        self._status.stamp(self._responder.answered, self.lifecycle.state, len(self.assignment), self._pid)
        self._metrics.add("polls_total")
        if now >= self._snapshots.due_at:
            self._snapshots.publish(now)

    def _obey(self, now: float) -> None:
        """Follow the supervisor's commands, and enforce deadlines."""
        self._dispatcher.check(now)
        command = self._status.command()
        if command & Command.CANCEL:
            self._leaving.cancel(now)
        elif (
            command & Command.DRAIN
            or self.drain_requested
            or self._consumer.stale
            or (self._dispatcher.cancelled and self._leaving.is_blocked(now))
        ):
            self._leaving.drain()
        elif command & Command.START_TASKS and self.lifecycle.state is State.JOINING:
            self.lifecycle.to(State.RUNNING)
            log.info("process.ready", protocol=self._consumer.protocol)
        if self.lifecycle.state is State.DRAINING:
            self._leaving.limit_settling(now)

    def _collect(self, now: float) -> None:
        """Handle the tasks that the executor has finished."""
        self._collected = self._results.collect(now)
        if self._collected:
            self._delivery_wait = DELIVERY_WAIT

    def _deliver(self, now: float) -> None:
        """Handle confirmed deliveries. Wait for them if no task can start, because a caller may need the answer."""
        lonely = self._collected and self._responder.under_way and not self._dispatcher.in_slot
        self._responder.serve(FLUSH_WAIT if lonely and not self.assignment.startable(now)[0] else 0, now)

    def _commit(self, now: float) -> None:
        """Commit settled offsets, and record which tasks start next."""
        self._committer.tick(now, responder_is_busy=self._responder.busy)

    def _release(self, now: float) -> None:
        """Release the revoked partitions that no task holds any more."""
        if self._rebalance.held:
            self._rebalance.serve(now, hurry=self.lifecycle.state is State.CANCELLING)

    def _fetch(self, now: float) -> None:
        """Poll the client for records, replies to commits, and rebalances."""
        self._went_on = self._fetcher.fetch(now)

    def _wait(self, now: float) -> None:
        """Wait for the next event, unless the fetch phase has already waited."""
        if self._went_on:
            return
        running = self._dispatcher.in_slot > 0
        commit_comes = not running and self._committer.in_flight  # a task may wait for its reply
        if not running and self._responder.under_way:
            # No more answers will join these, so send them now without lingering.
            self._responder.serve(self._fetcher.commit_wait if commit_comes else FLUSH_WAIT, now)
        elif commit_comes:
            self._mailbox.wait(self._fetcher.commit_wait)
        elif self._responder.outstanding:
            self._mailbox.wait(self._delivery_wait)
            self._delivery_wait = min(BUSY_WAIT, self._delivery_wait * 2)
        else:
            self._mailbox.wait(BUSY_WAIT)
