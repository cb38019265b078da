"""The model of a partition, with running tasks that are detached, settled elsewhere, released and taken over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.laws.partition_model import Model
from worker.core.detached import (
    ABSENT,
    DetachedClaim,
    MarkKind,
    Step,
    holder_of,
    next_step,
    read_mark,
    released_mark,
    settled_mark,
)
from worker.core.model import Outcome, Partition, Task, Verdict

if TYPE_CHECKING:
    from worker.core.commit_metadata import Detached
    from worker.core.detached import Mark
    from worker.core.dispatch import DispatchRule
    from worker.core.owned_partition import OwnedPartition

TOKEN = "5f3a9b2c"


class DetachingModel(Model):
    """The model of partitions with detached tasks.

    It also plays the holder and the watcher. The process is both, and so is each process that follows after a crash.
    """

    def __init__(self, ordering: str, numbers: tuple[int, ...]) -> None:
        self.detaching = True  # whether a task may be detached now
        self.marks: dict[str, tuple[int, str]] = {}  # as committed, by holder
        self.done: set[tuple[Partition, int]] = set()  # requests that a holder has answered
        self.twice: list[tuple[Partition, int]] = []  # answered by a holder, and not for the first time
        self._numbers = 0
        super().__init__(ordering, numbers)

    def begin(self) -> None:
        self.alive: set[str] = set()  # the holders of this process
        super().begin()

    # -- as the holder

    def detach(self, *args: object) -> bool:
        """Detach the running task from its partition, which is held. Return whether that was possible."""
        owned: OwnedPartition = args[0]  # type: ignore[assignment]
        task = self.running
        if not self.detaching or task is None or task.claim is not owned.lease or not owned.can_detach(task):
            return False
        self._numbers += 1
        claim = DetachedClaim(owned.lease, task.record.offset, task.attempt, holder_of(TOKEN, self._numbers))
        owned.detach(task, claim.holder)
        task.claim = claim
        self.alive.add(claim.holder)
        return True

    def collect(self, *, after: float = 0.0) -> None:
        """Handle the next outcome. A detached task whose partition has not moved is an ordinary task again."""
        outcome = self.inbox[0]
        claim = outcome.task.claim
        if not isinstance(claim, DetachedClaim):
            super().collect(after=after)
            return
        self.alive.discard(claim.holder)
        owned = self.assignment.partitions.get(claim.partition)
        if owned is not None and owned.lease is claim.lease:
            owned.reattach(outcome.task)
            outcome.task.claim = claim.lease
            super().collect(after=after)
            return
        self.inbox.popleft()
        if claim.is_named_by(self.group.get(claim.partition)):
            self._end(claim, outcome)

    def _end(self, claim: DetachedClaim, outcome: Outcome) -> None:
        """Commit the answer and the mark in one transaction, or leave another attempt to the owner."""
        place = (claim.partition, claim.offset)
        if outcome.verdict in (Verdict.OK, Verdict.REJECTED):
            if place in self.done:
                self.twice.append(place)
            self.done.add(place)
            self.answered[claim.partition].add(claim.offset)
            self.marks[claim.holder] = settled_mark(claim)
        else:
            attempts = outcome.task.attempt - (outcome.verdict is Verdict.DROPPED)
            self.marks[claim.holder] = released_mark(claim, attempts, 0.0)

    # -- as the watcher

    def watch(self, number: int, *, wrong: bool = False) -> None:
        """Check the detached tasks of a partition once. If ``wrong``, the check misses holders that are alive."""
        owned = self.assignment.partitions.get(Partition("t", number))
        if owned is None or owned.lease.leaving:
            return
        for offset, task in list(owned.detached.items()):
            mark = self._mark_of(task)
            recorded = owned.committed_detached.get(offset) == task
            step = next_step(task, mark, missing=wrong or task.holder not in self.alive, recorded=recorded)
            if step is Step.SETTLE:
                self._settle(owned, offset)
            elif step is Step.VACATE:
                owned.vacate(offset)
            elif step is Step.TAKE_OVER and owned.has_admitted(offset) and not self.committer.in_flight:
                attempts = mark.attempts if mark.kind is MarkKind.RELEASED else task.attempt
                owned.take_over(offset, attempts, 0.0)
                self.waiting[owned].add(offset)

    def _mark_of(self, task: Detached) -> Mark:
        return read_mark(task, self.marks[task.holder]) if task.holder in self.marks else ABSENT

    def _settle(self, owned: OwnedPartition, offset: int) -> None:
        if owned.has_admitted(offset):
            self.settled[owned].add(offset)
            self._finished[owned].add(offset)
        owned.settle_detached(offset)

    # -- differences for detached tasks

    def _compare_with_what_is_known(self, owned: OwnedPartition, offset: int) -> None:
        if offset not in owned.detached:
            super()._compare_with_what_is_known(owned, offset)

    def _count_crash(self, task: Task) -> None:
        """Leave out detached tasks. The entry of a detached task already counts its attempt."""
        if task.claim in [owned.lease for owned in self.assignment]:
            super()._count_crash(task)

    def _check_start(self, task: Task) -> None:
        super()._check_start(task)
        place = (task.record.partition, task.record.offset)
        if place in self.done and task.claim.valid:
            self.again.append(place)

    def run_dry(self, rule: DispatchRule) -> None:
        """Let all tasks finish successfully, those of the holders included."""
        for _ in range(4):
            super().run_dry(rule)
            for number in self.numbers:
                self.watch(number)
            self.now += 1
            self.tick()
            if self.sent is not None:
                self.arrive(applied=True)
            for number in self.numbers:
                self.watch(number)
        super().run_dry(rule)
