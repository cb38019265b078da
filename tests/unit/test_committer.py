"""One commit is in flight at a time, and its reply applies only to the positions that it carried."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.unit.support import PARTITION, a_task
from worker.core import commit_metadata
from worker.core.commit_metadata import decode, transaction_id_of
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
    """A client that records commits. The test replies to them."""

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
        """Confirm the answer to the task."""
        self.owned.answering(task)
        self.committer.settled(task.claim, PARTITION, 42)


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_a_start_is_confirmed_by_the_reply_to_its_commit(bench: Bench) -> None:
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (True, -1)
    assert [list(positions) for positions in bench.client.sent] == [[PARTITION]]
    bench.answer()
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, 43)
    assert bench.owned.committed == bench.client.sent[0][PARTITION]


def test_a_second_commit_waits_for_the_reply_to_the_first(bench: Bench) -> None:
    bench.owned.changed = True
    bench.tick()
    assert len(bench.client.sent) == 1
    bench.answer()
    bench.tick()
    assert len(bench.client.sent) == 2


def test_a_failed_commit_is_repeated(bench: Bench) -> None:
    bench.answer(failure=FAILURE)
    assert (bench.committer.in_flight, bench.owned.starts.confirmed, bench.owned.changed) == (False, -1, True)
    assert not bench.committer.fenced
    bench.tick()
    assert bench.client.sent[1] == bench.client.sent[0]


def test_the_committer_is_fenced_when_the_group_no_longer_knows_this_member(bench: Bench) -> None:
    """It stays fenced until a commit succeeds."""
    bench.answer(failure=FENCED)
    assert bench.committer.fenced
    bench.tick()
    bench.answer(1)
    assert not bench.committer.fenced


@pytest.mark.parametrize("failure", [None, FAILURE])
def test_a_late_reply_does_not_apply_to_the_next_commit(bench: Bench, failure: KafkaFailure | None) -> None:
    bench.tick(ANSWER_SECONDS)  # the first commit is given up
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, -1)
    bench.owned.admit(a_task(offset=43).record)
    bench.owned.request_starts(2, bench.now)
    bench.tick()
    assert len(bench.client.sent) == 2
    bench.answer(0, failure)
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (True, -1)
    bench.answer(1)
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, 44)


def test_the_committer_waits_longer_for_a_reply_while_the_coordinator_is_away(bench: Bench) -> None:
    bench.client.coordinator = False
    bench.tick(ANSWER_SECONDS)
    assert bench.committer.in_flight
    bench.answer()
    assert (bench.committer.in_flight, bench.owned.starts.confirmed) == (False, 43)


def test_no_commit_is_sent_during_a_transaction(bench: Bench) -> None:
    bench.answer()
    bench.owned.changed = True
    bench.tick(responder_is_busy=True)
    assert len(bench.client.sent) == 1
    bench.tick()
    assert len(bench.client.sent) == 2


def test_a_commit_of_a_lost_partition_is_not_pending(bench: Bench) -> None:
    assert bench.committer.pending
    bench.assignment.end([PARTITION])
    assert not bench.committer.pending


def test_an_answer_after_the_end_of_its_lease_settles_nothing(bench: Bench) -> None:
    """The next owner runs the task again, even if it is this process."""
    lease = bench.owned.lease
    (again,) = bench.assignment.assign({PARTITION: 42})
    bench.committer.settled(lease, PARTITION, 42)
    assert (again.position, again.changed) == (42, False)


def test_a_running_task_is_recorded_until_it_is_answered(bench: Bench) -> None:
    """A revoked partition is committed once more when none of its tasks runs."""
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


def test_reading_pending_changes_nothing(bench: Bench) -> None:
    """A drain reads it on every turn. Only a commit that was sent counts as recorded (B15)."""
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
    """Otherwise the next owner would suspect tasks that did not start, or report them as lost. Chaos, seed 240."""
    bench.owned.committed = Position(42, "")  # from before the commit in flight, which records a start
    bench.owned.leave()
    assert not bench.committer.is_clean(bench.owned)
    bench.answer(0, failure)
    assert not bench.committer.is_clean(bench.owned)
    bench.tick()
    assert not bench.committer.is_clean(bench.owned)
    bench.answer(1)
    assert bench.committer.is_clean(bench.owned)


def test_a_clean_commit_removes_the_recorded_start_of_a_task_that_is_given_up(bench: Bench) -> None:
    bench.answer()
    bench.start()
    bench.committer.commit_clean(bench.now)
    position = bench.client.sent[1][PARTITION]
    assert position.offset == 42
    assert decode(position.metadata, 42).started_below is None


def test_at_most_once_commits_an_offset_before_its_attempt() -> None:
    bench = Bench("at-most-once")
    position = bench.client.sent[0][PARTITION]
    assert position.offset == 43
    assert decode(position.metadata, 43).unanswered_from == 42


def test_two_transactions_of_offsets_never_commit_the_same_metadata() -> None:
    """Otherwise the metadata of the first one would show the second one as committed, although it was aborted."""
    bench = Bench("exactly-once")
    bench.answer()
    bench.owned.changed = True
    bench.tick()
    first, second = [sent[PARTITION] for sent in bench.client.sent]
    assert first.offset == second.offset
    assert decode(first.metadata, 42) == dataclasses.replace(
        decode(second.metadata, 42), transaction_id=transaction_id_of(first.metadata)
    )
    assert first.metadata != second.metadata


def test_a_partition_is_clean_although_its_metadata_fit_only_without_the_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The errors of earlier attempts are left out beside the number of the transaction."""
    bench = Bench("exactly-once")
    bench.answer()
    task = bench.start()
    task.attempt = 1
    bench.owned.fail(task, "ValueError")
    bench.owned.requeue(task, 1e9)
    bench.owned.leave()
    monkeypatch.setattr(
        commit_metadata, "LIMIT", len(bench.committer.prepare(bench.owned, clean=True).position.metadata) - 1
    )
    bench.owned.changed = True
    bench.tick()
    bench.answer(1)
    committed = bench.owned.committed
    assert committed is not None
    assert decode(committed[1], 42).attempts == {42: 1}
    assert not decode(committed[1], 42).errors
    assert bench.committer.is_clean(bench.owned)
