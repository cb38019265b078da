"""Record which tasks of a partition may have started, so that the next owner knows which task crashed a process.

A task starts only below the *start limit*, an offset that a confirmed commit has recorded as "may have started". The
next owner reads this limit. If the last owner did not stop cleanly, the lowest unanswered task of that range is charged
with an attempt. All tasks of the range become *suspects*: until they are answered, they run one at a time, and no task
that could be blamed instead runs beside them.

Short tasks get their limit many tasks ahead, in commits that are due anyway. A task of a second or more gets its own
limit. So after a crash among short tasks the count is an upper bound: a healthy task may show one attempt too many,
once. A process of the same replica knows more: its supervisor tells it which task the dead process was running
(``Crash``). The token in the metadata shows whether the range belongs to that process.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from worker.core.commit_metadata import EMPTY, LONGEST_ERROR, MOST_ERRORS, CommitMetadata, Suspects
from worker.core.retry import End, attempts_after

if TYPE_CHECKING:
    from collections.abc import Mapping
    from collections.abc import Set as AbstractSet

    from worker.core.crash import Crash


_NO_NAME = re.compile(r"[^A-Za-z0-9_]")  # not allowed in the name of an error type in the commit metadata


class StartLog:
    """The start limit, failed attempts and crash suspects of one lease. Used on the poll thread."""

    __slots__ = (
        "_crash",
        "_former",
        "_restarting",
        "_to_blame",
        "attempts",
        "confirmed",
        "errors",
        "progressed",
        "requested",
        "suspects",
        "waiting",
    )

    def __init__(self, former: CommitMetadata = EMPTY, crash: Crash | None = None) -> None:
        """``crash`` is the task that the process ``former.started_by`` was running when it died, if known."""
        # By offset: the attempt of a previous owner that saved a checkpoint. A crash does not count against it.
        self.progressed: dict[int, int] = {}
        self.confirmed = -1  # tasks below this offset may start
        self.requested = -1  # the limit that the next commit will record
        self.attempts: dict[int, int] = dict(former.attempts)  # failed attempts of unanswered tasks
        self.errors: dict[int, str] = dict(former.errors)  # types of the last errors, of the latest failures
        self.waiting: set[int] = set(former.waiting)  # failed tasks whose next start is not requested yet
        self.suspects = _suspects(former, crash)
        self._restarting: set[int] = set()  # failed tasks that start again once a commit has recorded it
        self._former = former
        self._crash = crash
        self._to_blame = former.started_below is not None and (crash is None or crash.offset is not None)

    # -- taking over from the previous owner

    def charge_crash(self, position: int) -> bool:
        """Charge the task that crashed the previous owner, if it is known and not answered. Return whether it was.

        Call it before the first task is admitted or recorded: from then on, this process writes the start limit.
        """
        crash = self._crash
        if crash is None or crash.offset is None or not self._to_blame:
            return False
        self._to_blame = False
        answered = any(first <= crash.offset < stop for first, stop in [(0, position), *self._former.completed])
        if answered or crash.offset in self._former.detached:
            return False
        self._charge(crash.offset, max(crash.attempt, self._started_before(crash.offset) + 1))
        return True

    def admit(self, offset: int) -> bool:
        """Charge the lowest unanswered task that may have crashed its process. Return whether it was this one.

        An attempt that has saved a checkpoint is not charged: the next one resumes after it.
        """
        former = self._former
        if not self._to_blame or offset in former.waiting:
            return False
        self._to_blame = False
        if former.started_below is None or offset >= former.started_below:
            return False
        self._charge(offset, self._started_before(offset) + 1)
        return True

    def _started_before(self, offset: int) -> int:
        """Return how many attempts of a task may have been made before the one that crashed."""
        former = self._former
        crashes = former.suspects.crashes if former.suspects and offset < former.suspects.below else 0
        return former.attempts.get(offset, crashes)

    def _charge(self, offset: int, attempts: int) -> None:
        progressed = self.progressed.get(offset) == attempts
        self.attempts[offset] = attempts_after(attempts, End.DIED, new_checkpoint=progressed)

    def is_suspect(self, offset: int) -> bool:
        """Return whether this task may have crashed a process."""
        return self.suspects is not None and offset < self.suspects.below

    # -- starting

    @property
    def held(self) -> AbstractSet[int]:
        """Return the failed tasks that may not start again yet, because no confirmed commit has recorded it."""
        return self.waiting | self._restarting if self.waiting or self._restarting else frozenset()

    @property
    def restarts(self) -> Mapping[int, int]:
        """Return the failed tasks whose next start the next commit records, with the attempts that it records."""
        return {offset: self.attempts.get(offset, 0) for offset in self._restarting}

    def may_start(self, offset: int) -> bool:
        """Return whether a confirmed commit has recorded the next start of this task."""
        return offset < self.confirmed and offset not in self.held

    def request(self, limit: int, failed: AbstractSet[int]) -> None:
        """Request the start of tasks below ``limit``, and of these ``failed`` tasks, which wait."""
        self.requested = max(self.requested, limit)
        self.waiting -= failed
        self._restarting |= failed

    def postpone_restarts(self) -> bool:
        """Let the failed tasks whose start is requested wait again, because others start first. Return whether any did.

        Otherwise a commit would record that they may have started, and a crash of the others would count against them.
        """
        postponed = bool(self._restarting)
        self.waiting |= self._restarting
        self._restarting.clear()
        return postponed

    @property
    def outstanding(self) -> bool:
        """Return whether a task waits for the commit that records its start."""
        return self.requested > self.confirmed or bool(self._restarting)

    def started(self, offset: int) -> None:
        """Record that a task was dispatched, perhaps beyond the limit while commits are not possible."""
        if offset >= max(self.confirmed, self.requested):
            self.requested = offset + 1

    def failed(self, offset: int, attempt: int, error: str = "") -> None:
        """Record that an attempt failed with an error of this type. The task waits for the next one."""
        self.attempts[offset] = attempt
        self.errors.pop(offset, None)
        if error:
            self.errors[offset] = _NO_NAME.sub("_", error)[:LONGEST_ERROR]
        if len(self.errors) > MOST_ERRORS:
            del self.errors[next(iter(self.errors))]
        self.waiting.add(offset)

    def settled(self, offset: int) -> None:
        """Record that the answer is confirmed."""
        self.attempts.pop(offset, None)
        self.errors.pop(offset, None)
        self.waiting.discard(offset)
        self._restarting.discard(offset)

    # -- committing

    def record(self, position: int, *, clean: bool, process: str = "") -> CommitMetadata:
        """Return the metadata for the next owner. If ``clean``, no task runs, so none can be blamed for a crash.

        ``process`` is the token of this process.
        """
        if self.attempts and min(self.attempts) < position:
            self._forget_below(position)
        below = -1 if clean else max(self.confirmed, self.requested)
        suspects = self.suspects if self.suspects is not None and self.suspects.below > position else None
        if self._to_blame:  # no task has been charged yet, so the next owner has to do it
            process = process if below > position else self._former.started_by  # this process may run one, too
            below = max(below, self._former.started_below or -1)
            suspects = self._former.suspects
        return CommitMetadata(
            started_below=below if below > position else None,
            started_by=process if below > position else "",
            suspects=suspects,
            attempts=self.attempts,
            waiting=frozenset(self.waiting),
            errors=self.errors,
        )

    def _forget_below(self, position: int) -> None:
        """Forget failed tasks whose records were deleted before this process has read them."""
        for offset in [offset for offset in self.attempts if offset < position]:
            self.settled(offset)

    def confirm(self, limit: int, restarts: Mapping[int, int]) -> None:
        """Record that a commit with this limit and these ``restarts`` was confirmed."""
        self.confirmed = max(self.confirmed, limit)
        for offset, attempts in restarts.items():
            if self.attempts.get(offset, 0) == attempts:  # it has not failed again meanwhile
                self._restarting.discard(offset)


def _suspects(former: CommitMetadata, crash: Crash | None) -> Suspects | None:
    """Return every task that may have crashed a process, limited to those that the last process may have started.

    If the task is known, the others only run alone for a while: the crash does not count against them.
    """
    if former.started_below is None or (crash is not None and crash.offset is None):
        return former.suspects
    before = former.suspects.crashes if former.suspects else 0
    return Suspects(former.started_below, before if crash is not None else before + 1)
