"""Announces long tasks on the state topic, writes their progress and checkpoints, and resumes them. Poll thread."""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

import structlog

from worker.codec import RUN_HEADER
from worker.core.detached import DetachedClaim
from worker.core.long_task import LongTask
from worker.core.task_state import CANCELLING, DETACHED, WAITING, Origin, TaskState
from worker.executors.port import all_running
from worker.formats import FORMATS
from worker.process.followed import Followed
from worker.process.state_writer import StateWriter
from worker.state.table import Kind

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from worker.core.claim import Claim
    from worker.core.model import Partition, Task
    from worker.core.owned_partition import OwnedPartition
    from worker.executors.port import Executor, Running
    from worker.executors.reports import Report
    from worker.process.shared import Shared
    from worker.state.port import StateTopic
    from worker.state.table import Change, StateTable

log = structlog.get_logger("states")


class LongTasks:
    """The records that this process has on the state topic, and what it has read there.

    Without a state topic (None) it knows nothing. A batch has no long tasks, but its requests can be cancelled.
    """

    def __init__(self, shared: Shared, topic: StateTopic | None, executor: Executor) -> None:
        config = shared.config
        self.tasks: dict[Origin, LongTask] = {}
        self._config = config
        self._format = FORMATS[config.message_format]
        self._guarantee = shared.guarantee
        self._enabled = topic is not None and config.batch_size == 1
        self._followed = Followed(topic, shared.clock)
        self._writer = None if topic is None else StateWriter(topic, self._followed.table, shared.metrics)
        self._assignment = shared.assignment
        self._executor = executor
        self._detached: dict[Origin, Claim] = {}  # tasks that run here although their partitions may have moved
        self._warned = False

    @property
    def table(self) -> StateTable:
        """Return the state of this process's partitions on the topic. What the process itself wrote is in ``tasks``."""
        return self._followed.table

    # -- partitions

    def begin(self, partitions: Collection[Partition]) -> bool:
        """Return whether these partitions may start: their states are known, or cannot be read for a while."""
        return self._followed.begin(partitions)

    def assigned(self, owned: OwnedPartition, completed: Iterable[tuple[int, int]]) -> None:
        """Begin a lease. ``completed`` are ranges that an earlier owner has answered above the committed offset."""
        self._followed.began(owned.partition)
        for origin in [origin for origin in self.tasks if origin.place == owned.partition]:
            if not self._is_held(origin):
                del self.tasks[origin]  # of an earlier lease; the topic is more recent
        ranges = [(0, owned.start_offset or 0), *completed]
        for origin, state in self._known_of(owned.partition):
            if any(first <= origin.offset < stop for first, stop in ranges):
                if origin not in self.tasks:
                    self._adopt(state).settle()
            elif state.made_checkpoint and state.state != WAITING:
                owned.starts.progressed[origin.offset] = state.attempt
                if origin not in self.tasks and origin.offset not in owned.detached and state.state != CANCELLING:
                    self._adopt(state).become(WAITING)  # a start that dies before its first record is not excused

    def _known_of(self, partition: Partition) -> list[tuple[Origin, TaskState]]:
        return [(origin, state) for origin, state in self.table.states.items() if origin.place == partition]

    def _adopt(self, state: TaskState) -> LongTask:
        """Take over a record that an earlier start has left on the topic."""
        ours = dataclasses.replace(state, worker=self._config.name)  # the reader does not pass on our own records
        task = self.tasks[state.origin] = LongTask(ours, announced=True, former=state.worker)
        return task

    def pending(self, partition: Partition | None = None) -> bool:
        """Return whether the topic still lacks something that the next owner of this partition needs (None: of any)."""
        return any(
            partition in (None, origin.place) and (task.pending or self._is_committed(task))
            for origin, task in self.tasks.items()
        )

    def is_pending(self, origin: Origin) -> bool:
        """Return whether the topic still lacks something about this request that its next attempt needs."""
        task = self.tasks.get(origin)
        return task is not None and task.pending

    # -- one request

    def prepare(self, tasks: Sequence[Task]) -> None:
        """Give these tasks, which are about to be dispatched, the checkpoints to resume from."""
        if self.tasks or self.table.states:
            for task in tasks:
                state = self._known(origin_of(task))
                task.resume = state.resume if state is not None else None

    def _known(self, origin: Origin) -> TaskState | None:
        task = self.tasks.get(origin)
        return task.state if task is not None else self.table.states.get(origin)

    def report(self, report: Report) -> None:
        """Handle a report of the handler."""
        if not self._enabled:
            self._warn(report)
            return
        if not (report.task.claim.valid or self._guarantee.starts_once):
            return  # the next owner resumes from the state at the end of the lease
        tracked = self._track(report.task)
        if report.progress is not None:
            tracked.progress(*report.progress)
        if report.checkpoint is not None:
            tracked.checkpoint(report.checkpoint)

    def _warn(self, report: Report) -> None:
        if report.checkpoint is not None and not self._warned:
            self._warned = True
            log.warning("checkpoint.ignored")

    def made_checkpoint(self, task: Task) -> bool:
        """Return whether the start that has just ended saved a checkpoint other than the one it resumed from.

        If the task is detached, another process resumes it, so only a checkpoint that the topic has counts.
        """
        origin = origin_of(task)
        tracked = self.tasks.get(origin)
        if tracked is None or not tracked.runs:
            return False
        return tracked.checkpoint_confirmed if origin in self._detached else tracked.state.made_checkpoint

    def made_checkpoint_elsewhere(self, origin: Origin, attempt: int) -> bool:
        """Return whether, according to the topic, this attempt in another process did the same."""
        state = self._known(origin)
        return state is not None and state.attempt == attempt and state.made_checkpoint

    def waits(self, task: Task) -> None:
        """Record that the attempt has ended and that another follows, here or elsewhere."""
        if self.tasks and (tracked := self.tasks.get(origin_of(task))) is not None:
            tracked.become(WAITING)

    def detached(self, task: Task) -> None:
        """Keep the record of a task that continues here when its partition moves."""
        if self._enabled:
            self._detached[origin_of(task)] = task.claim
            tracked = self._track(task)
            tracked.announce()
            if tracked.state.state != CANCELLING:  # the next owner must not start it again
                tracked.become(DETACHED)

    def attached(self, origin: Origin) -> None:
        """Return the record to the partition's owner."""
        self._detached.pop(origin, None)

    def settling(self, settled: Callable[..., None]) -> Callable[..., None]:
        """Wrap the callback that settles delivered answers, so that their states are removed too."""

        def both(claim: Claim, partition: Partition, *offsets: int) -> None:
            settled(claim, partition, *offsets)
            if not isinstance(claim, DetachedClaim):  # its holder calls it when the mark is confirmed
                self.settled(claim, partition, *offsets)

        return both

    def settled(self, claim: Claim, partition: Partition, *offsets: int) -> None:
        """Record that the answers to these requests are delivered or committed, or that their marks are."""
        if not (self.tasks or self.table.states) or not (claim.valid or self._guarantee.starts_once):
            return
        final = self._guarantee.starts_once or isinstance(claim, DetachedClaim)
        for offset in offsets:
            origin = Origin.of(partition, offset)
            tracked = self.tasks.get(origin)
            if tracked is None and (state := self.table.states.get(origin)) is not None:
                tracked = self._adopt(state)
            if tracked is None or tracked.over:
                continue
            if final or tracked.state.state != CANCELLING:
                tracked.settle()
            else:
                tracked.answered = True  # without its state, the next owner would run it until a commit covers it

    def _is_committed(self, task: LongTask) -> bool:
        """Return whether a confirmed commit covers the answer, so that the state is not needed any more."""
        owned = self._assignment.partitions.get(task.origin.place)
        return task.answered and owned is not None and owned.has_committed(task.origin.offset)

    # -- every turn

    def serve(self, now: float) -> None:
        """Handle incoming changes, watch the running tasks, and write the records that are due."""
        if self._writer is None:
            return
        for change in self._followed.take_in():
            if change.kind is Kind.REACHED:
                self._writer.cancel_request_removed(change.origin)
            self._take(change, now)
        self._writer.serve(now)
        if self._enabled:
            for running in all_running(self._executor):
                self._watch(running)
        self._write(self._writer, now)
        self._followed.forget({*self._assignment.partitions, *(origin.place for origin in self._detached)})

    def _take(self, change: Change, now: float) -> None:
        """Handle a record that another process wrote about one of our requests."""
        tracked = self.tasks.get(change.origin)
        if tracked is None or tracked.over:
            return
        if change.kind in (Kind.STATE, Kind.STALE):
            other = self.table.states.pop(change.origin, None)
            if other is not None and other.start == tracked.state.start:
                self._take_late(other, tracked)
                return
            if change.kind is Kind.STATE and change.origin.place not in self._assignment.partitions:
                self._detached.pop(change.origin, None)  # another process has taken the task over
                return
            if other is None or other.start < tracked.state.start:
                tracked.written_over()
            else:
                tracked.outranked(other.epoch, now)
        elif change.kind is Kind.SETTLED and tracked.announced and not tracked.answered:
            tracked.outranked(0, now)

    def _take_late(self, other: TaskState, tracked: LongTask) -> None:
        """Handle a record about the start that ``tracked`` describes.

        It may be our own, which is read again when the partition comes back. Or the former owner wrote it before it
        noticed that it had lost the partition.
        """
        if other.worker != tracked.former or tracked.state.state != WAITING:
            return
        if other.state == CANCELLING:  # see ``cancelled_before``
            del self.tasks[other.origin]
            self.table.states[other.origin] = other
        else:
            tracked.saved_late(other)

    def _watch(self, running: Running) -> None:
        """Check whether a running task has become long, or resumes an earlier start."""
        is_long = running.seconds >= self._config.long_after
        if not (is_long or self.tasks or self.table.states):
            return
        origin = origin_of(running.task)
        tracked, known = self.tasks.get(origin), self.table.states.get(origin)
        if tracked is not None and tracked.over:
            return
        if tracked is None and known is not None and known.state == CANCELLING:
            return  # an earlier start was cancelled: see ``cancelled_before``
        if is_long or origin in self.table.states or (tracked is not None and not tracked.runs):
            self._track(running.task).announce()

    def _track(self, task: Task) -> LongTask:
        """Return the record of the running start."""
        origin = origin_of(task)
        tracked = self.tasks.get(origin)
        if tracked is not None and tracked.runs:
            return tracked
        seconds = next((running.seconds for running in all_running(self._executor) if running.task is task), 0.0)
        fresh = self._fresh(origin, task, time.time_ns() - int(seconds * 1e9))
        if tracked is not None:
            tracked.started(fresh)
            return tracked
        known = self.table.states.pop(origin, None)
        if known is None:
            tracked = self.tasks[origin] = LongTask(fresh)
        else:
            tracked = self.tasks[origin] = LongTask(known, announced=True)
            tracked.started(fresh)
        return tracked

    def _fresh(self, origin: Origin, task: Task, started_ns: int) -> TaskState:
        record = task.record
        run = next((value for name, value in reversed(record.headers) if name == RUN_HEADER), None)
        return TaskState(
            origin,
            self._config.name,
            max(1, task.attempt),
            started_ns,
            started_ns,
            task.attempt,
            record.key or b"",
            self._format.sequence_of(record.value),
            run=(run or b"").decode(errors="replace"),
        )

    def _write(self, writer: StateWriter, now: float) -> None:
        for origin, task in list(self.tasks.items()):
            if self._is_committed(task):
                task.settle()
            if task.done or not self._is_ours(origin):
                del self.tasks[origin]  # settled, or the next owner's
                self.attached(origin)
            elif task.due(now):
                writer.write(task, now)

    def _is_ours(self, origin: Origin) -> bool:
        """Return whether this process writes the record of the request."""
        return self._guarantee.starts_once or origin.place in self._assignment.partitions or self._is_held(origin)

    def _is_held(self, origin: Origin) -> bool:
        """Return whether the task runs here although its partition may have moved."""
        claim = self._detached.get(origin)
        return claim is not None and claim.valid

    # -- cancel requests

    def cancel_reached(self, origin: Origin, now: float) -> None:
        """Remove the cancel request, because it has reached its request."""
        if self._writer is not None:
            self._writer.remove_cancel_request(origin, now)

    def cancelling(self, task: Task) -> bool:
        """Write to the topic that the running task was asked to stop. Return whether the topic has that."""
        if not self._enabled:
            return False
        tracked = self._track(task)
        tracked.announce()
        tracked.become(CANCELLING)
        return tracked.cancelling_confirmed

    def cancelled_before(self) -> list[Origin]:
        """Return the requests that were asked to stop in an earlier start and have not started here."""
        states = self.table.states
        return [origin for origin, state in states.items() if state.state == CANCELLING and origin not in self.tasks]

    def close(self) -> None:
        """Give up everything that is not written yet."""
        if self._writer is not None:
            self._writer.close()

    @property
    def count(self) -> int:
        """Return the number of long tasks that run here."""
        return sum(task.announced and task.runs and not task.over for task in self.tasks.values())


def origin_of(task: Task) -> Origin:
    """Return the origin of a task's request."""
    return Origin.of(task.record.partition, task.record.offset)
