"""Connects this package to the rest of the worker: its tasks and its runner.

Only this module knows ``Task``, ``Claim`` and ``AttemptRunner``. Parent and child each use their own half.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from worker.core.model import Outcome, Partition, Record, Task
from worker.formats import FORMATS
from worker.handlers.attempt import AttemptRunner
from worker.handlers.context import Cancelled, Context
from worker.isolation.context import RemoteCancelled
from worker.isolation.frames import pack_checkpoint, pack_progress
from worker.isolation.view import TaskView

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.claim import Claim
    from worker.handlers.loader import Handler
    from worker.isolation.config import ChildConfig
    from worker.isolation.frames import Ended

# -- the parent's tasks


def view_of(task: Task) -> TaskView:
    """Return what the child needs. The number of an ordering group is valid while any of its tasks is in flight."""
    record, group = task.record, task.group
    upcoming = tuple([(one.offset, one.value) for one in task.upcoming]) if task.upcoming else ()
    return TaskView(
        record.partition.topic,
        record.partition.number,
        record.offset,
        task.attempt,
        record.key,
        record.value,
        record.headers,
        record.timestamp_ms,
        0 if group is None else id(group),
        upcoming,
        task.resume,
    )


def may_start(task: Task) -> bool:
    """Return whether the partition is still ours to work on and the ordering group is not blocked."""
    group = task.group
    return not (task.claim.leaving or (group is not None and group.blocked))


def block(task: Task) -> None:
    """Block the ordering group of a failed task until the poll thread has all of its tasks back."""
    if task.group is not None:
        task.group.blocked = True


def set_aside(task: Task) -> None:
    """Let the task continue beside others. No task of its ordering group starts before it ends."""
    if task.group is not None:
        task.group.set_aside()


def outcome_of(task: Task, ended: Ended) -> Outcome:
    """Return the outcome of our task that the child reported."""
    task.attempt = ended.attempt
    return Outcome(
        task,
        ended.verdict,
        ended.sequence,
        ended.started_ns,
        ended.result,
        ended.failure,
        ended.retry_after,
        ended.started_ns + int(ended.run_seconds * 1e9) if ended.started_ns else 0,
        ended.run_seconds,
        ended.cpu_seconds,
        ended.sent,
    )


# -- the child


class ChildRunner:
    """Runs attempts in a child, on its main thread."""

    def __init__(
        self,
        handler: Handler,
        config: ChildConfig,
        words: memoryview,
        descriptor: int,
        write: Callable[[bytes], None],
    ) -> None:
        """``write`` writes a report to the parent. Any thread may call it."""
        self._runner = _Runner(handler, config, words, descriptor)
        self._runner.sink = _ReportSink(self._runner, write)
        self._partitions: dict[tuple[str, int], Partition] = {}

    def begin(self) -> None:
        """Prepare to run tasks one after another."""
        self._runner.begin()

    def run(self, number: int, view: TaskView) -> tuple[Outcome, int]:
        """Run one attempt of the task with this number. Return its outcome, and the number of its starts."""
        self._runner.number = number
        task = self._task(view)
        outcome = self._runner.run(task)
        return outcome, task.attempt

    def _task(self, view: TaskView) -> Task:
        place = (view.topic, view.partition)
        partition = self._partitions.get(place)
        if partition is None:
            partition = self._partitions[place] = Partition(*place)
        record = Record(partition, view.offset, view.key, view.value, view.headers, view.timestamp_ms)
        task = Task(record, cast("Claim", None), view.attempt - 1)  # claims belong to the parent
        task.resume = view.resume
        if view.upcoming:
            task.upcoming = tuple([Record(partition, offset, None, value) for offset, value in view.upcoming])
        return task


class _ReportSink:
    """See ``worker.handlers.attempt.Sink``: reports to the parent."""

    def __init__(self, runner: _Runner, write: Callable[[bytes], None]) -> None:
        self._runner = runner
        self._write = write

    def progress(self, task: Task, fraction: float, message: str) -> None:  # noqa: ARG002 - the parent knows the task
        """See ``Sink``."""
        self._write(pack_progress(self._runner.number, fraction, message))

    def checkpoint(self, task: Task, data: bytes) -> None:  # noqa: ARG002
        """See ``Sink``."""
        self._write(pack_checkpoint(self._runner.number, data))


class _Runner(AttemptRunner):
    def __init__(self, handler: Handler, config: ChildConfig, words: memoryview, descriptor: int) -> None:
        decode = FORMATS[config.message_format].decode_request
        super().__init__(handler, config.kwargs, config.max_attempts, decode=decode)
        self.number = 0
        self._words = words
        self._descriptor = descriptor

    def _prepare(self, task: Task, deadline: float | None) -> Context | Outcome:
        context = super()._prepare(task, deadline)
        if isinstance(context, Context):
            context.cancelled = cast("Cancelled", RemoteCancelled(self._words, self._descriptor, self.number))
        return context
