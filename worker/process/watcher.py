"""Watches the detached tasks of owned partitions: settles them by their marks, or takes them over. Poll thread only.

The rules are in ``worker.core.detached``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.core.detached import (
    ABSENT_SECONDS,
    UNKNOWN,
    Absences,
    MarkKind,
    Step,
    entry_of,
    in_turn,
    mark_group,
    next_step,
    read_mark,
    view_of,
)
from worker.core.retry import End, attempts_after
from worker.core.task_state import Origin
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from worker.core.commit_metadata import Detached
    from worker.core.detached import Mark
    from worker.core.owned_partition import OwnedPartition
    from worker.kafka.ports import GroupClient, MemberView
    from worker.process.committer import Committer
    from worker.process.group_calls import GroupCalls
    from worker.process.holder import Holder
    from worker.process.long_tasks import LongTasks
    from worker.process.responder import Responder
    from worker.process.shared import Shared

READ_SECONDS = 2.0  # between two reads of the marks
AGAIN_SECONDS = 0.1  # the same while a task is taken over as soon as no commit is under way
DELETE_SECONDS = 600.0  # a mark is kept this long after it was seen, because its holder may still need it

log = structlog.get_logger("detached")


class _Watched(NamedTuple):
    """A detached task as it was when its mark was requested."""

    owned: OwnedPartition
    offset: int
    task: Detached
    recorded: bool  # this state of the task was known to be committed

    @property
    def origin(self) -> Origin:
        """Return the origin of the request."""
        return Origin.of(self.owned.partition, self.offset)


class _Seen(NamedTuple):
    """What the coordinators reported. A mark is None if the group's metadata do not have our entry of the task."""

    marks: list[Mark | None]
    members: list[MemberView] | None


class Watcher:
    """The detached tasks of the partitions that this process owns."""

    def __init__(
        self,
        shared: Shared,
        committer: Committer,
        responder: Responder,
        holder: Holder,
        calls: GroupCalls,
        long_tasks: LongTasks,
    ) -> None:
        self._config = shared.config
        self._token = shared.token
        self._guarantee = shared.guarantee
        self._assignment = shared.assignment
        self._committer = committer
        self._responder = responder
        self._holder = holder
        self._calls = calls
        self._long_tasks = long_tasks
        self._metrics = shared.metrics
        self._absences = Absences()
        self._reading = False
        self._read_at = 0.0  # when to read next
        self._look_at = 0.0  # when to request the next view of the group
        self._marks: list[tuple[float, OwnedPartition, int, str]] = []  # to delete: when, and the task and its holder

    def serve(self, now: float) -> None:
        """Do one turn. It sends no request while there are no detached tasks."""
        if self._marks and self._marks[0][0] <= now:
            self._delete_mark()
        if self._reading or now < self._read_at:
            return
        awaited = [
            _Watched(owned, offset, task, owned.committed_detached.get(offset) == task)
            for owned in self._assignment
            if owned.detached and not owned.lease.leaving
            for offset, task in owned.detached.items()
        ]
        if not awaited:
            return
        self._reading, self._read_at = True, now + READ_SECONDS
        looks = now >= self._look_at
        if looks:
            self._look_at = now + ABSENT_SECONDS
        group, watched = self._config.group, in_turn(awaited, int(now // READ_SECONDS))
        holders = {one.task.holder for one in awaited}
        self._calls.send(
            lambda client: _see(client, group, watched, looks=looks),
            lambda seen: self._take(watched, seen, holders, now),
        )

    # -- handling what was read

    def _take(self, watched: Sequence[_Watched], seen: _Seen, holders: Collection[str], now: float) -> None:
        self._reading = False
        if seen.members is not None:
            view = view_of(seen.members, self._config.request_topics)
            if view.counts(self._token if self._config.state_topic else ""):  # see main._consumer_properties
                self._absences.look(view.tokens, holders, now)
        for one, mark in zip(watched, seen.marks, strict=True):
            if one.owned.lease.leaving or one.owned.detached.get(one.offset) != one.task:
                continue  # the task has changed since its mark was requested
            if mark is None:
                one.owned.changed = True  # perhaps a late copy of an earlier commit has replaced it: commit it again
                continue
            step = next_step(one.task, mark, missing=self._is_missing(one.task), recorded=one.recorded)
            if step is Step.SETTLE:
                self._settle(one, now)
            elif step is Step.VACATE:
                one.owned.vacate(one.offset)
                log.warning("task.vacated", **one.origin._asdict(), holder=one.task.holder)
                self._read_at = now
            elif step is Step.TAKE_OVER:
                self._take_over(one, mark, now)

    def _is_missing(self, task: Detached) -> bool:
        """Return whether no process seems to run the task any more."""
        if task.holder.startswith(self._token):
            return not self._holder.holds(task.holder)
        return self._absences.is_missing(task.holder)

    def _settle(self, one: _Watched, now: float) -> None:
        one.owned.settle_detached(one.offset)
        self._long_tasks.settled(one.owned.lease, one.owned.partition, one.offset)  # its holder may have died since
        self._marks.append((now + DELETE_SECONDS, one.owned, one.offset, one.task.holder))
        log.info("task.settled_elsewhere", **one.origin._asdict(), holder=one.task.holder)

    def _take_over(self, one: _Watched, mark: Mark, now: float) -> None:
        if self._guarantee.starts_once:
            self._lose(one)
            return
        if not one.owned.has_admitted(one.offset):
            if one.owned.next_offset > one.offset:
                one.owned.forget_detached(one.offset)
                log.error("task.record_deleted", **one.origin._asdict())
            return
        if not (self._committer.quiesce() and self._responder.quiesce()):
            self._read_at = now + AGAIN_SECONDS  # the start is recorded by a commit that begins after this
            return
        released = mark.kind is MarkKind.RELEASED
        attempts = mark.attempts if released else self._attempts_of_the_dead(one)
        one.owned.take_over(one.offset, attempts, now + mark.pause if mark.pause else 0.0)
        self._metrics.add("taken_over_total")
        log.warning("task.taken_over", **one.origin._asdict(), holder=one.task.holder, attempts=attempts)

    def _attempts_of_the_dead(self, one: _Watched) -> int:
        attempt = one.task.attempt
        made = self._long_tasks.made_checkpoint_elsewhere(one.origin, attempt)
        return attempts_after(attempt, End.DIED, new_checkpoint=made)

    def _lose(self, one: _Watched) -> None:
        """Give up a task whose holder is gone, because it must not start again (at-most-once)."""
        one.owned.settle_detached(one.offset)
        self._long_tasks.settled(one.owned.lease, one.owned.partition, one.offset)
        self._metrics.add("lost_total")
        log.warning("tasks.lost", partition=str(one.owned.partition), offsets=[f"{one.offset}-{one.offset}"])

    def _delete_mark(self) -> None:
        """Delete a mark whose task is settled by a confirmed commit. Marks that remain expire with their group."""
        _, owned, offset, holder = self._marks.pop(0)
        if owned.lease.valid and offset not in owned.committed_detached:
            group = mark_group(self._config.group, owned.partition, offset, holder)
            self._calls.send(lambda client: client.delete(group), lambda _failure: None)


def _see(client: GroupClient, group: str, watched: Sequence[_Watched], *, looks: bool) -> _Seen:
    """Read the marks, and view the group's members. Runs on the thread for calls."""
    members = client.members(group) if looks else None
    marks = [_read(client, group, one) for one in watched]
    return _Seen(marks, None if isinstance(members, KafkaFailure) else members)


def _read(client: GroupClient, group: str, one: _Watched) -> Mark | None:
    """Read the mark of a task. If the task is vacated, its holder must be able to see that before.

    The holder reads the group's metadata without waiting for open transactions. A transaction counts as committed
    before its offsets are visible.
    """
    partition = one.owned.partition
    if one.task.vacated and one.recorded:
        visible = client.committed(group, partition, stable=False)
        if isinstance(visible, KafkaFailure):
            return UNKNOWN
        if entry_of(one.offset, visible) != one.task:
            return None
    found = client.committed(mark_group(group, partition, one.offset, one.task.holder), partition, stable=True)
    return UNKNOWN if isinstance(found, KafkaFailure) else read_mark(one.task, found)
