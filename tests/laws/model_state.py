"""The state of the model of partitions: what the broker and the two threads have, and the violations of the laws."""

from __future__ import annotations

import dataclasses
from collections import Counter, defaultdict, deque
from typing import TYPE_CHECKING, NamedTuple

from tests.process_fake.world import CONFIG
from worker.core.commit_metadata import EMPTY, CommitMetadata, decode
from worker.core.model import Outcome, Partition, Record, Task, Verdict
from worker.process.shared import Shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.owned_partition import OwnedPartition
    from worker.kafka.ports import Position

HOLD_SECONDS = 10.0  # no limit of a held partition passes before this time, except in a hurry
Place = tuple[Partition, int]


class SentCommit(NamedTuple):
    """A commit in flight, and the offsets that its sender knew to be settled when it sent the commit."""

    positions: Mapping[Partition, Position]
    settled: Mapping[Partition, frozenset[int]]


class HeldPartition(NamedTuple):
    """A revoked partition that has not been released yet."""

    owned: OwnedPartition
    since: float


class ModelState:
    """The records, the group and one process of the group. Each step is checked against what was recorded before."""

    protocol = "consumer"

    def __init__(self, ordering: str, numbers: tuple[int, ...]) -> None:
        self.ordering, self.numbers = ordering, numbers
        self.now = 100.0
        # What the broker has.
        self.logs: dict[Partition, list[Record]] = {Partition("t", number): [] for number in numbers}
        self.ends = dict.fromkeys(self.logs, 0)
        self.group: dict[Partition, Position] = {}
        self.committed_as_settled: dict[Partition, frozenset[int]] = {}
        self.answered: defaultdict[Partition, set[int]] = defaultdict(set)
        # What must not happen, or has to be counted.
        self.overtaken: list[tuple[int, int]] = []
        self.again: list[Place] = []  # started although they were known to be answered
        self.early: list[Place] = []  # recorded as answered although they were not
        self.uncounted: list[Place] = []  # crashes that their tasks were not charged with
        self.blamed: list[Place] = []  # charged with a crash while they waited for their next attempt
        self.unrecorded: list[Place] = []  # waited for their next attempt although a commit did not say so
        self.released_early: list[Partition] = []
        self.longest = 0
        self.crashes: Counter[Place] = Counter()  # of processes, by the task that ran
        self.begin()

    def begin(self) -> None:
        """Begin a new process, which owns no partition yet."""
        config = dataclasses.replace(CONFIG, ordering=self.ordering, revoke_hold={self.protocol: HOLD_SECONDS})
        self.shared = Shared.of(config, lambda: self.now, "a0000001")
        self.assignment = self.shared.assignment
        self.submitted: deque[Task] = deque()  # the executor's queue
        self.running: Task | None = None
        self.inbox: deque[Outcome] = deque()  # the poll thread's mailbox
        self.produced: list[Task] = []  # answers that are being delivered
        self.sent: SentCommit | None = None
        self.coordinator = (True, True)  # whether it replies, and whether it has applied a commit whose reply was lost
        self.admitted: defaultdict[OwnedPartition, set[int]] = defaultdict(set)
        self.settled: defaultdict[OwnedPartition, set[int]] = defaultdict(set)
        self.waiting: defaultdict[OwnedPartition, set[int]] = defaultdict(set)  # failed, and not started since
        # The tasks in ``waiting`` whose next start a commit records.
        self.restarting: defaultdict[OwnedPartition, set[int]] = defaultdict(set)
        self.held: dict[Partition, HeldPartition] = {}
        self._excused: set[OwnedPartition] = set()  # they may be released without a last commit
        self._finished: defaultdict[OwnedPartition, set[int]] = defaultdict(set)  # for good
        self._former: dict[OwnedPartition, CommitMetadata] = {}
        self._end_before: dict[OwnedPartition, int] = {}  # end of the log when the lease began
        self._position: dict[Partition, int] = {}

    def write(self, number: int, gap: int, key: bytes | None) -> None:
        partition = Partition("t", number)
        offset = self.ends[partition] + gap - 1
        self.logs[partition].append(Record(partition, offset, key, b"x" * gap))
        self.ends[partition] = offset + 1

    def mark(self, number: int) -> None:
        """Write the marker of a transaction."""
        self.ends[Partition("t", number)] += 1

    def recorded(self, partition: Partition) -> CommitMetadata:
        """Return the metadata that the group has recorded for a partition."""
        position = self.group.get(partition)
        return decode(position.metadata, position.offset) if position else EMPTY

    def _apply(self, sent: SentCommit) -> None:
        for partition, offsets in sent.settled.items():
            self.group[partition] = sent.positions[partition]
            before = self.committed_as_settled.get(partition, frozenset())
            self.committed_as_settled[partition] = before | offsets

    # -- what must not happen

    def _compare_with_what_is_known(self, owned: OwnedPartition, offset: int) -> None:
        place = (owned.partition, offset)
        if not owned.offsets.is_incomplete(offset):  # a previous owner has answered it
            self.settled[owned].add(offset)
            self._finished[owned].add(offset)
            if offset not in self.answered[owned.partition]:
                self.early.append(place)
            return
        attempts, former = owned.starts.attempts.get(offset, 0), self._former[owned]
        if attempts < self.crashes[place]:
            self.uncounted.append(place)
        if offset in former.waiting:
            self.waiting[owned].add(offset)
            if attempts != former.attempts[offset]:
                self.blamed.append(place)

    def _count_crash(self, task: Task) -> None:
        """Count a crash if it is certain to be charged.

        That is a crash of the lowest unanswered task that does not wait for another attempt, if its start was recorded.
        Of two crashes in a row only one is charged, if the second task started before the first was fetched again.
        """
        partition, offset = task.record.partition, task.record.offset
        owned = self.assignment.owner_of(task)
        if owned is not None and owned.starts._to_blame:
            self.crashes.subtract({place: 1 for place in self.crashes if place[0] == partition})
        recorded, position = self.recorded(partition), self.group.get(partition)
        done = _offsets(recorded)
        start = position.offset if position else 0
        done |= recorded.detached.keys()
        unanswered = [one.offset for one in self.logs[partition] if one.offset >= start and one.offset not in done]
        first = min((one for one in unanswered if one not in recorded.waiting), default=-1) if task.claim.valid else -1
        if offset == first and recorded.started_below is not None and offset < recorded.started_below:
            self.crashes[partition, offset] += 1

    def _check_commit(self, owned: OwnedPartition, offset: int, recorded: CommitMetadata) -> None:
        """Check that a commit records only true answers, and every task that waits for another attempt."""
        partition, done = owned.partition, _offsets(recorded)
        said = {one.offset for one in self.logs[partition] if one.offset < offset or one.offset in done}
        self.early += [(partition, wrong) for wrong in said - self.answered[partition]]
        self.restarting[owned] |= owned.starts._restarting & self.waiting[owned]
        missing = self.waiting[owned] - recorded.waiting - self.restarting[owned]
        self.unrecorded += [(partition, one) for one in missing]

    def _check_release(self, owned: OwnedPartition) -> None:
        """Check that the next owner finds all requests that were settled, and no task that seems to run."""
        recorded, position = self.recorded(owned.partition), self.group.get(owned.partition)
        below, done = position.offset if position else 0, _offsets(recorded)
        known = all(one < below or one in done for one in self.settled[owned])
        quiet = recorded.started_below is None or owned.starts._to_blame  # a limit that a previous owner has left
        if not known or not quiet or self.at_the_executor(owned) or self._delivering(owned):
            self.released_early.append(owned.partition)

    def _check_start(self, task: Task) -> None:
        owned, record = self.assignment.owner_of(task), task.record
        if owned is None:
            return
        finished = {o.task.record.offset for o in self.inbox if o.task.claim is task.claim and o.verdict is Verdict.OK}
        for lower in self.admitted[owned] - self._finished[owned] - finished:
            if lower < record.offset and self._keep_their_order(owned.partition, lower, record):
                self.overtaken.append((record.offset, lower))
        if record.offset in self.committed_as_settled.get(record.partition, ()):
            self.again.append((record.partition, record.offset))

    def _keep_their_order(self, partition: Partition, lower: int, record: Record) -> bool:
        """Return whether the record must not overtake the request at the lower offset."""
        if self.ordering == "partition":
            return True
        key = next(one.key for one in self.logs[partition] if one.offset == lower)
        return self.ordering == "key" and key is not None and key == record.key

    # -- where the tasks are

    def count_in_flight(self) -> int:
        return len(self.submitted) + len(self.inbox) + (self.running is not None)

    def at_the_executor(self, owned: OwnedPartition) -> list[Task]:
        tasks = [*self.submitted, *(outcome.task for outcome in self.inbox)]
        tasks += [self.running] if self.running is not None else []
        return [task for task in tasks if task.claim is owned.lease]

    def _delivering(self, owned: OwnedPartition) -> bool:
        return any(task.claim is owned.lease for task in self.produced)


def _offsets(recorded: CommitMetadata) -> set[int]:
    return {offset for first, stop in recorded.completed for offset in range(first, stop)}
