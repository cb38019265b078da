"""A model of the two threads and the broker around an assignment. It makes one step at a time and records each step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.laws.model_state import HOLD_SECONDS, HeldPartition, ModelState, SentCommit
from worker.core.commit_metadata import decode
from worker.core.model import Outcome, Partition, PartitionEnd, Task, Verdict
from worker.kafka.ports import KafkaFailure, Position
from worker.process.committer import Committer
from worker.process.long_tasks import LongTasks
from worker.process.rebalance import Rebalance

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from worker.core.claim import Claim
    from worker.core.dispatch import DispatchRule
    from worker.core.owned_partition import OwnedPartition
    from worker.process.crash_reports import CrashReport

LONG = 1_000_000
FAILED = KafkaFailure("REQUEST_TIMED_OUT", "scripted")
FENCED = KafkaFailure("UNKNOWN_MEMBER_ID", "scripted")


class Model(ModelState):
    """A model of the loop, the executor, the producer and the broker. It records violations of the laws.

    It also plays the consumer, the responder and the dispatcher that the committer and the rebalance call.
    """

    fenced = False  # as the responder

    def quiesce(self) -> bool:
        """Act as the responder, which commits nothing."""
        return True

    def begin(self) -> None:
        """Begin a new process, which owns no partition yet."""
        super().begin()
        me = self._as_anything()
        self.committer = Committer(self.shared, me)
        long_tasks = LongTasks(self.shared, None, me)
        no_reports: dict[str, CrashReport] = {}
        self.rebalance = Rebalance(
            self.shared, me, self.committer, me, me, me, None, me, long_tasks, lambda: no_reports
        )

    def _as_anything(self) -> Any:
        return self

    def expedite(self) -> None:
        """Act as the snapshots."""

    # -- the broker

    def assign(self, number: int) -> None:
        """Begin a lease, unless there is one. A commit of an earlier lease has arrived before, or never will."""
        partition = Partition("t", number)
        if partition in self.assignment.partitions:
            return
        if self.sent is not None:
            rest = {one: offsets for one, offsets in self.sent.settled.items() if one != partition}
            self.sent = self.sent._replace(settled=rest)
        position = self.group.get(partition)
        assert self.rebalance.ready([partition])
        assert self.rebalance.assigned({partition: position}) == {}
        owned = self.assignment.partitions[partition]
        self._former[owned] = self.recorded(partition)
        self._end_before[owned] = self.ends[partition]
        self._position[partition] = position.offset if position else 0

    def deliver(self, number: int, count: int) -> None:
        """Deliver records that were not fetched yet, or the end of the partition if there are none."""
        partition = Partition("t", number)
        at = self._position.get(partition)
        if at is None:
            return
        records = [record for record in self.logs[partition] if record.offset >= at][:count]
        owned = self.assignment.partitions.get(partition)
        for record in records:
            self._position[partition] = record.offset + 1
            self.assignment.admit([record])
            if owned is not None and not owned.lease.leaving:
                self.admitted[owned].add(record.offset)
                self._compare_with_what_is_known(owned, record.offset)
        if not records:
            self.assignment.admit([PartitionEnd(partition, self.ends[partition])])

    def revoke(self, number: int) -> None:
        """Revoke the partition. It is held for its running task."""
        partition = Partition("t", number)
        owned = self.assignment.partitions.get(partition)
        if owned is not None and not owned.lease.leaving:
            self.held[partition] = HeldPartition(owned, self.now)
            self.rebalance.revoked([partition])

    def serve_held(self, *, hurry: bool = False) -> None:
        if hurry:
            self._excused.update(held.owned for held in self.held.values())
        self.rebalance.serve(self.now, hurry=hurry)
        self._forget_what_is_gone()

    def lose(self, number: int) -> None:
        partition = Partition("t", number)
        if partition in self.held:
            self._excused.add(self.held[partition].owned)
        self.rebalance.lost([partition])
        self._forget_what_is_gone()

    def _forget_what_is_gone(self) -> None:
        self._position = {one: at for one, at in self._position.items() if one in self.assignment.partitions}

    def crash(self) -> None:
        """Let the running task crash the process. A commit in flight has arrived before, or never will."""
        if self.running is not None:
            self._count_crash(self.running)
        self.begin()

    # -- as the consumer

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        assert self.sent is None, "two commits at once"
        settled = {}
        for partition, (offset, text) in positions.items():
            owned = self.assignment.partitions[partition]
            self.longest = max(self.longest, len(text))
            self._check_commit(owned, offset, decode(text, offset))
            settled[partition] = frozenset(self.settled[owned])
        self.sent = SentCommit(positions, settled)

    def arrive(self, *, applied: bool, failure: KafkaFailure | None = None) -> None:
        """Let the commit in flight reach the broker or not. Its sender sees a success or a failure."""
        sent, self.sent = self.sent, None
        assert sent is not None
        if applied:
            self._apply(sent)
        if failure is FENCED:
            self._excused.update(self.assignment)
        self.committer.committed(sent.positions, failure)

    def coordinator_answers(self) -> bool:
        """Return whether the coordinator replies. If so, an earlier commit has been applied, or never will be."""
        answers, applied = self.coordinator
        if answers and self.sent is not None:
            sent, self.sent = self.sent, None
            if applied:
                self._apply(sent)
        return answers

    def release(self, partitions: Sequence[Partition]) -> None:
        for partition in partitions:
            owned, since = self.held.pop(partition)
            if owned not in self._excused and self.now - since < HOLD_SECONDS:
                self._check_release(owned)

    # -- as the responder and the dispatcher

    def detach(self, *_: object) -> bool:
        """Act as the holder, and detach nothing."""
        return False

    def revoked(self, _now: float) -> None:
        """Act as the holder."""

    def assigned(self, *_: float) -> None:
        """Act as the responder. A transactional one begins to find out the outcome of its transaction here."""

    def withdraw(self, claims: Collection[Claim]) -> None:
        for task in [task for task in self.submitted if task.claim in claims]:
            self.submitted.remove(task)
            owned = self.assignment.owner_of(task)
            if owned is not None:
                owned.requeue(task)

    def cancel(self, reason: str, now: float, claims: Collection[Claim]) -> None:
        """Act as the dispatcher. Whether a task stops is another step."""

    # -- the poll thread

    def take(self, rule: DispatchRule) -> list[Task]:
        tasks = self.assignment.take(rule, self.now, in_flight=self.count_in_flight())
        for task in tasks:
            owned = self.assignment.owner_of(task)
            assert owned is not None
            assert not task.claim.leaving
            unrecorded = rule.unlimited or (rule.at_once and self._is_new(owned, task.record.offset))
            assert unrecorded or task.record.offset < owned.starts.confirmed, "no commit has recorded its start"
            recorded = self.recorded(owned.partition)
            assert task.record.offset not in recorded.waiting, "a commit says that it waits"
            counted = recorded.attempts.get(task.record.offset, 0)
            assert counted >= task.attempt, "no commit has recorded its failed attempts"
            self.waiting[owned].discard(task.record.offset)
            self.restarting[owned].discard(task.record.offset)
        self.submitted.extend(tasks)
        self.assignment.request_starts(rule, self.now, in_flight=self.count_in_flight())
        return tasks

    def _is_new(self, owned: OwnedPartition, offset: int) -> bool:
        """Return whether only this process can have started the request, and must answer no older one first."""
        return min(offset, owned.position) >= self._end_before[owned]

    def tick(self) -> None:
        self.committer.tick(self.now, responder_is_busy=False)

    def collect(self, *, after: float = 0.0) -> None:
        outcome = self.inbox.popleft()
        task, verdict = outcome.task, outcome.verdict
        owned = self.assignment.owner_of(task)
        if owned is None:
            return
        if verdict is Verdict.NOT_STARTED:
            owned.requeue(task)
        elif verdict is Verdict.DROPPED:
            task.attempt -= 1
            owned.requeue(task)
        elif verdict is Verdict.FAILED:
            owned.fail(task)
            owned.requeue(task, self.now + after)
            self.waiting[owned].add(task.record.offset)
        else:
            owned.answering(task)
            self._finished[owned].add(task.record.offset)
            self.produced.append(task)

    def confirm(self, pick: int) -> None:
        task = self.produced.pop(pick % len(self.produced))
        owned, offset = self.assignment.owner_of(task), task.record.offset
        self.answered[task.record.partition].add(offset)
        if owned is not None:
            self.settled[owned].add(offset)
        self.committer.settled(task.claim, task.record.partition, offset)

    # -- the executor's thread

    def look(self) -> None:
        task = self.submitted.popleft()
        if task.claim.leaving or (task.group is not None and task.group.blocked):
            self.inbox.append(Outcome(task, Verdict.NOT_STARTED))
            return
        self._check_start(task)
        task.attempt += 1
        self.running = task

    def finish(self, verdict: Verdict) -> None:
        task, self.running = self.running, None
        assert task is not None
        if verdict is not Verdict.OK and task.group is not None:
            task.group.blocked = True
        self.inbox.append(Outcome(task, verdict))

    # -- the end

    def run_dry(self, rule: DispatchRule) -> None:
        """Let all tasks finish successfully."""
        idle = 0
        while idle < 5:
            self.now += LONG
            before = self._so_far()
            if self.sent is not None:
                self.arrive(applied=True)
            self.serve_held()
            for number in self.numbers:
                self.assign(number)
                self.deliver(number, 5)
            self.take(rule)
            while self.submitted or self.running:
                self.look() if self.running is None else self.finish(Verdict.OK)
            while self.inbox:
                self.collect()
            while self.produced:
                self.confirm(0)
            self.tick()
            idle = idle + 1 if self._so_far() == before else 0

    def _so_far(self) -> tuple[dict[Partition, Position], int, dict[Partition, int]]:
        return dict(self.group), sum(map(len, self.answered.values())), dict(self._position)
