"""Cancel requests from the state topic. Each is followed until its request is reached. Used on the poll thread."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from worker.executors.port import running_tasks
from worker.process.long_tasks import origin_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from worker.core.lease import Lease
    from worker.core.model import Task
    from worker.core.owned_partition import OwnedPartition
    from worker.core.task_state import Origin
    from worker.executors.port import Executor
    from worker.process.dispatcher import Dispatcher
    from worker.process.long_tasks import LongTasks
    from worker.process.results import ResultHandler
    from worker.process.shared import Shared


class Cancellations:
    """Check every turn all cancel requests that have not reached their request yet.

    So it does not matter when a cancel request comes: before its task is fetched, while the task is queued, dispatched
    or running, between two attempts, or when it is already answered. It stays on the topic until a confirmed commit
    covers the answer, or until the topic says that the running task was asked to stop.
    """

    def __init__(
        self,
        shared: Shared,
        long_tasks: LongTasks,
        executor: Executor,
        dispatcher: Dispatcher,
        results: ResultHandler,
    ) -> None:
        self._guarantee = shared.guarantee
        self._in_order = bool(shared.config.offset_store)
        self._lifecycle = shared.lifecycle
        self._long_tasks = long_tasks
        self._assignment = shared.assignment
        self._executor = executor
        self._dispatcher = dispatcher
        self._results = results
        self._metrics = shared.metrics
        self._withdrawn: dict[Origin, Lease] = {}  # taken back from the executor once, under this lease
        self._counted: set[Origin] = set()

    def serve(self, now: float) -> None:
        """Do everything that is possible now for each of them."""
        table = self._long_tasks.table
        before = self._long_tasks.cancelled_before() if table.states else []
        if self._in_order:
            self._cancel_again()
            self._hold_back([*table.cancels, *before])
        if not (table.cancels or before):
            self._withdrawn.clear()
            self._counted.clear()
            return
        for origin in dict.fromkeys([*table.cancels, *before]):
            owned = self._assignment.partitions.get(origin.place)
            running = self._running(origin)
            if owned is not None and origin.offset not in owned.detached:
                self._see_to(origin, owned, running, now)
            elif running is not None and running.claim.valid:
                self._stop(running, origin, now)  # the task is detached, and this process is its holder

    def _cancel_again(self) -> None:
        """Stop the next attempt of a task whose cancelled one may be stored: it has begun, so that one is not."""
        if cancelled := self._results.cancelled_tasks:
            for task in running_tasks(self._executor):
                if task in cancelled:
                    self._dispatcher.cancel_task(task)

    def _hold_back(self, origins: Collection[Origin]) -> None:
        """Let none of these start while it waits for its turn to be answered."""
        for owned in self._assignment:
            offsets = [
                one.offset for one in origins if one.place == owned.partition and not owned.is_settled(one.offset)
            ]
            waiting = [offset for offset in offsets if not self._results.may_be_stored(owned, offset)]
            owned.cancelled_from = min(waiting, default=math.inf)

    def _running(self, origin: Origin) -> Task | None:
        """Return the task of this request if it is running, alone or in a batch."""
        # Perhaps also a start of an earlier lease.
        running = running_tasks(self._executor)
        return next((task for task in running if task.claim.valid and origin_of(task) == origin), None)

    def _see_to(self, origin: Origin, owned: OwnedPartition, running: Task | None, now: float) -> None:
        if owned.is_settled(origin.offset):
            if owned.has_committed(origin.offset):  # before, the next owner needs the cancel request
                self._count(origin, "answered")
                self._long_tasks.cancel_reached(origin, now)
        elif running is not None:
            self._stop(running, origin, now)
        elif self._may_answer(origin.offset, owned):
            self._take_out(origin, owned)
        elif self._in_order:
            self._withdraw(origin, owned)

    def _may_answer(self, offset: int, owned: OwnedPartition) -> bool:
        """Return whether this process may answer the request without a start.

        With at-most-once, that takes the same commit as a start. Otherwise the next owner of the partition could answer
        it again. No task is dispatched between the reply to that commit and the next call of ``serve``. Once the
        process is leaving, its commits take back the starts of waiting tasks.

        An offset store moves past the request, so those before it must be done. If it may already have the result of
        the request, the next attempt finds out.
        """
        if self._in_order:
            return offset == owned.lowest and not owned.busy and not self._results.may_be_stored(owned, offset)
        if not self._guarantee.starts_once:
            return True
        return self._lifecycle.may_start and owned.starts.may_start(offset)

    def _take_out(self, origin: Origin, owned: OwnedPartition) -> None:
        """Answer the request if it waits in its queue. Take it back from the executor if it may be there."""
        if not self._answer_queued(origin, owned) and self._withdraw(origin, owned):
            self._answer_queued(origin, owned)  # at once: the dispatcher would submit it again

    def _answer_queued(self, origin: Origin, owned: OwnedPartition) -> bool:
        """Answer the request if it waits in its queue. Return whether it did."""
        task = owned.pull(origin.offset) if owned.has_room_for(origin.offset) else None
        if task is None:
            return False
        self._count(origin, "queued")
        self._results.cancel(task, owned)
        return True

    def _withdraw(self, origin: Origin, owned: OwnedPartition) -> bool:
        """Take the request back from the executor, once, if it may be there. Return whether that was tried."""
        if not owned.in_flight or origin.offset > owned.offsets.last or self._withdrawn.get(origin) is owned.lease:
            return False
        self._withdrawn[origin] = owned.lease
        self._dispatcher.withdraw([owned.lease])
        return True

    def _stop(self, task: Task, origin: Origin, now: float) -> None:
        """Ask the running task to stop. Its cancel request counts as reached once the topic says so.

        A task of a batch has no record, so its cancel request stays until the task is answered.
        """
        if not self._dispatcher.cancel_task(task):
            return
        self._results.to_cancel(task)
        self._count(origin, "running")
        if self._long_tasks.cancelling(task):
            self._long_tasks.cancel_reached(origin, now)

    def _count(self, origin: Origin, found: str) -> None:
        if origin not in self._counted:
            self._counted.add(origin)
            self._metrics.add("cancel_requests_total", label=found)
