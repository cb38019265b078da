"""One commit is under way at a time; what its answer says counts for what it carried, and for nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.unit.support import PARTITION, a_task
from worker.core.commit_metadata import decode
from worker.core.commits import ANSWER_SECONDS
from worker.core.model import Partition
from worker.kafka.ports import KafkaFailure, Position
from worker.process.committer import Committer
from worker.process.shared import Shared

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.model import Task

OTHER = Partition("requests", 4)
FAILURE = KafkaFailure("REQUEST_TIMED_OUT", "scripted")
FENCED = KafkaFailure("UNKNOWN_MEMBER_ID", "scripted", retriable=False)


class Client:
    """Writes down what is committed. The test answers."""

    def __init__(self) -> None:
        self.sent: list[Mapping[Partition, Position]] = []
        self.coordinator = True

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        self.sent.append(positions)

    def coordinator_answers(self) -> bool:
        return self.coordinator


class Bench:
    """A committer with two partitions. One of them has a task whose start is being committed."""

    def __init__(self, guarantee: str = "at-least-once") -> None:
        self.client, self.now = Client(), 100.0
        config = SimpleNamespace(
            guarantee=guarantee, ordering="partition", batch_size=1, commit_every=1, commit_interval=5.0
        )
        shared = Shared.of(cast("Any", config), lambda: self.now, "a0000001")
        self.assignment = shared.assignment
        self.owned, self.other = self.assignment.assign({PARTITION: 42, OTHER: 0})
        self.other.committed = Position(0, "")
        self.committer = Committer(shared, cast("Any", self.client))
        self.owned.admit(a_task(offset=42).record)
        self.owned.request_starts(1, self.now)
        self.tick()

    def tick(self, seconds: float = 1.0, *, responder_is_busy: bool = False) -> None:
        self.now += seconds
        self.committer.tick(self.now, responder_is_busy=responder_is_busy)

    def answer(self, number: int = 0, failure: KafkaFailure | None = None) -> None:
        self.committer.committed(self.client.sent[number], failure)

    def start(self) -> Task:
        (task,) = self.owned.take(1, self.now, below=43)
        return task

    def finish(self, task: Task) -> None:
        """The task's answer is confirmed."""
        self.owned.answering(task)
        self.committer.settled(task.claim, PARTITION, 42)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_start_is_confirmed_by_the_answer_to_its_commit(bench: Bench) -> None:
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (True, -1)
    assert [list(positions) for positions in bench.client.sent] == [[PARTITION]]
    bench.answer()
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, 43)
    assert bench.owned.committed == bench.client.sent[0][PARTITION]


def test_a_second_commit_waits_for_the_answer_to_the_first(bench: Bench) -> None:
    bench.owned.changed = True
    bench.tick()
    assert len(bench.client.sent) == 1
    bench.answer()
    bench.tick()
    assert len(bench.client.sent) == 2


def test_after_a_failure_the_same_is_committed_again(bench: Bench) -> None:
    bench.answer(failure=FAILURE)
    assert (bench.committer.in_flight, bench.owned.starts.confirmed, bench.owned.changed) == (False, -1, True)
    assert not bench.committer.fenced
    bench.tick()
    assert bench.client.sent[1] == bench.client.sent[0]


def test_it_knows_that_the_group_no_longer_knows_this_member(bench: Bench) -> None:
    """Until a commit succeeds."""
    bench.answer(failure=FENCED)
    assert bench.committer.fenced
    bench.tick()
    bench.answer(1)
    assert not bench.committer.fenced


@pytest.mark.parametrize("failure", [None, FAILURE])
def test_a_late_answer_says_nothing_of_the_commit_after_it(bench: Bench, failure: KafkaFailure | None) -> None:
    bench.tick(ANSWER_SECONDS)  # the first one is given up
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, -1)
    bench.owned.admit(a_task(offset=43).record)
    bench.owned.request_starts(2, bench.now)
    bench.tick()
    assert len(bench.client.sent) == 2
    bench.answer(0, failure)
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (True, -1)
    bench.answer(1)
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, 44)


def test_it_waits_longer_while_the_coordinator_is_away(bench: Bench) -> None:
    bench.client.coordinator = False
    bench.tick(ANSWER_SECONDS)
    assert bench.committer.in_flight
    bench.answer()
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, 43)


def test_nothing_is_committed_beside_a_transaction(bench: Bench) -> None:
    bench.answer()
    bench.owned.changed = True
    bench.tick(responder_is_busy=True)
    assert len(bench.client.sent) == 1
    bench.tick()
    assert len(bench.client.sent) == 2


def test_a_partition_that_was_lost_is_not_waited_for(bench: Bench) -> None:
    assert bench.committer.pending
    bench.assignment.end([PARTITION])
    assert not bench.committer.pending


def test_an_answer_after_the_end_of_its_lease_settles_nothing(bench: Bench) -> None:
    """The next owner does the task again, also when that is this process."""
    lease = bench.owned.lease
    (again,) = bench.assignment.assign({PARTITION: 42})
    bench.committer.settled(lease, PARTITION, 42)
    assert (again.position, again.changed) == (42, False)


def test_what_runs_is_recorded_until_it_is_answered(bench: Bench) -> None:
    """A revoked partition is committed once more when nothing of it runs."""
    bench.answer()
    assert decode(bench.client.sent[0][PARTITION].metadata, 42).started_below == 43
    task = bench.start()
    bench.owned.leave()
    bench.finish(task)
    bench.tick()
    position = bench.client.sent[1][PARTITION]
    assert position.offset == 43
    assert decode(position.metadata, 43).started_below is None
    assert not bench.committer.is_clean(bench.owned)
    bench.answer(1)
    assert bench.committer.is_clean(bench.owned)
    assert not bench.committer.pending


def test_to_look_whether_something_is_pending_changes_nothing(bench: Bench) -> None:
    """A drain looks on every turn. Only what is sent counts as recorded (B15)."""
    bench.answer()
    task = bench.start()
    bench.owned.leave()
    bench.finish(task)
    bench.tick()
    bench.answer(1, FAILURE)
    bench.owned.changed, bench.owned.room.full = False, True
    assert bench.committer.pending
    assert bench.committer.pending
    assert bench.owned.room.full
    assert len(bench.client.sent) == 2
    bench.tick()
    assert len(bench.client.sent) == 3


@pytest.mark.parametrize("failure", [None, FAILURE])
def test_a_revoked_partition_is_not_clean_while_a_commit_may_still_be_applied(
    bench: Bench, failure: KafkaFailure | None
) -> None:
    """The next owner would blame tasks that were not started, or report them as lost. Chaos, seed 240."""
    bench.owned.committed = Position(42, "")  # before the commit under way, which records a start
    bench.owned.leave()
    assert not bench.committer.is_clean(bench.owned)
    bench.answer(0, failure)
    assert not bench.committer.is_clean(bench.owned)
    bench.tick()
    assert not bench.committer.is_clean(bench.owned)
    bench.answer(1)
    assert bench.committer.is_clean(bench.owned)


def test_a_task_that_is_given_up_is_not_blamed(bench: Bench) -> None:
    bench.answer()
    bench.start()
    bench.committer.commit_clean(bench.now)
    position = bench.client.sent[1][PARTITION]
    assert position.offset == 42
    assert decode(position.metadata, 42).started_below is None


def test_an_offset_is_committed_before_an_attempt_that_is_never_repeated() -> None:
    bench = Bench("at-most-once")
    position = bench.client.sent[0][PARTITION]
    assert position.offset == 43
    assert decode(position.metadata, 43).unanswered_from == 42
