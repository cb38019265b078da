"""How a worker process leaves the group. Used on the poll thread.

The order is: no new task starts, running tasks finish while polling continues, their answers are confirmed, their
offsets are committed, and the process leaves.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import structlog

from worker.core.deadline import Deadline
from worker.core.lifecycle import State
from worker.errors import ExitCode
from worker.executors.port import all_running

if TYPE_CHECKING:
    from worker.executors.port import Executor
    from worker.kafka.ports import Consumer
    from worker.process.committer import Committer
    from worker.process.dispatcher import Dispatcher
    from worker.process.fetcher import Fetcher
    from worker.process.holder import Holder
    from worker.process.long_tasks import LongTasks
    from worker.process.responder import Responder
    from worker.process.shared import Shared
    from worker.process.snapshot import Snapshots
    from worker.process.store_bridge import StoreBridge

POLL_WAIT = 0.05  # seconds in the client's poll while the last commit is under way
SETTLE_LIMIT = 60.0  # seconds for the last answers and commits when leaving
GIVE_UP_LIMIT = 3.0  # seconds to commit that a task was given up

log = structlog.get_logger("loop")


class Leaving:
    """The steps from the first request to leave until the process has left."""

    def __init__(
        self,
        shared: Shared,
        consumer: Consumer,
        executor: Executor,
        dispatcher: Dispatcher,
        responder: Responder,
        committer: Committer,
        holder: Holder,
        long_tasks: LongTasks,
        store: StoreBridge | None,
        fetcher: Fetcher,
        snapshots: Snapshots,
    ) -> None:
        self._config = shared.config
        self._guarantee = shared.guarantee
        self._lifecycle = shared.lifecycle
        self._assignment = shared.assignment
        self._consumer = consumer
        self._executor = executor
        self._dispatcher = dispatcher
        self._responder = responder
        self._committer = committer
        self._holder = holder
        self._long_tasks = long_tasks
        self._store = store
        self._fetcher = fetcher
        self._snapshots = snapshots
        self._clock = shared.clock
        self._limit = Deadline()
        self._blocked = False  # leaving because a task that was given up occupies the executor

    def drain(self) -> None:
        """Start no new task, and let running tasks finish."""
        if self._lifecycle.to(State.DRAINING):
            log.info("process.draining")
            self._executor.closed = self._committer.leaving = True

    def cancel(self, now: float) -> None:
        """Ask the running tasks to stop. Call it on every turn."""
        self._executor.closed = self._committer.leaving = True
        if self._lifecycle.to(State.CANCELLING):
            self._limit = Deadline.after(self._config.cancel_wait, now)
        self._dispatcher.cancel("drain", now)

    def is_blocked(self, now: float) -> bool:
        """Return whether other work waits behind a task that was given up but does not end."""
        if not self._blocked and self._dispatcher.is_blocked(now) and self._fetcher.work_waits():
            self._blocked = True
            # Those that the executor has would come back only when that task ends.
            self._dispatcher.withdraw([owned.lease for owned in self._assignment])
            log.warning("process.blocked")
        return self._blocked

    def limit_settling(self, now: float) -> None:
        """Limit the remaining steps to ``SETTLE_LIMIT`` seconds once no task runs: the broker may be unavailable."""
        if not self._working() and self._limit.at == math.inf:
            self._limit = Deadline.after(SETTLE_LIMIT, now)

    @property
    def finished(self) -> bool:
        """Return whether a process that has begun to leave can go now."""
        settled = not (self._working() or self._unsettled() or self._long_tasks.pending())
        return settled or self._limit.passed(self._clock())

    def leave(self) -> ExitCode:
        """Leave the group and free the clients."""
        cancelled = self._dispatcher.gave_up or self._working()
        unsettled = self._unsettled()
        if self._working() and not self._guarantee.starts_once:
            self._give_up_tasks()
        self._lifecycle.to(State.CLOSED)
        self._assignment.end(list(self._assignment.partitions))
        self._consumer.close()
        self._responder.close()
        self._long_tasks.close()
        if not cancelled and not all_running(self._executor):  # the handler may ignore that its lease has ended
            self._executor.stop()
            if self._store is not None:
                self._store.close()  # not during a task that was given up, because its transaction may be open
        self._snapshots.publish(self._clock())
        return ExitCode.DRAIN_TIMED_OUT if cancelled or unsettled else ExitCode.DRAINED

    def _working(self) -> bool:
        """Return whether tasks are in flight that can still be settled."""
        if self._guarantee.starts_once and not self._blocked:
            return self._dispatcher.in_flight > 0
        return self._holder.running or any(owned.in_flight for owned in self._assignment)

    def _unsettled(self) -> bool:
        store_waits = self._store is not None and self._store.waits
        return self._responder.outstanding > 0 or self._committer.pending or self._holder.busy or store_waits

    def _give_up_tasks(self) -> None:
        """Commit that no task runs, so that a task that ignored its cancellation has not used up an attempt."""
        limit = Deadline.after(GIVE_UP_LIMIT, self._clock())
        self._holder.give_up()
        sent = False
        while not limit.passed(self._clock()):
            marks_wait = self._holder.gives_up(self._clock())
            if not (sent or self._committer.in_flight or self._responder.busy):
                self._committer.commit_clean(self._clock())
                sent = True
            elif sent and not (marks_wait or self._committer.in_flight):
                return
            self._consumer.poll(1, POLL_WAIT)
            self._responder.serve(0, self._clock())  # a commit may be a transaction
