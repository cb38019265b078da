"""A commit under way when partitions are given back: its answer cannot be heard then, and nothing waits for it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.unit.support import PARTITION, a_task
from worker.core.assignment import Assignment
from worker.core.model import Partition
from worker.kafka.ports import KafkaFailure, Position
from worker.metrics import Metrics
from worker.process.committer import Committer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from worker.core.lane import Lane

OTHER = Partition("requests", 4)
FAILURE = KafkaFailure("REQUEST_TIMED_OUT", "scripted")


class Client:
    """Writes down what is committed; asynchronous commits stay without an answer."""

    def __init__(self) -> None:
        self.sent: list[Mapping[Partition, Position]] = []
        self.sync: list[Mapping[Partition, Position]] = []
        self.failure: KafkaFailure | None = None

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        self.sent.append(positions)

    def commit_now(self, positions: Mapping[Partition, Position]) -> KafkaFailure | None:
        self.sync.append(positions)
        return self.failure


class Desk:
    """A committer with two lanes, of which one waits for a permit that is under way."""

    def __init__(self, guarantee: str = "exactly-once") -> None:
        self.client, self.now = Client(), 100.0
        assignment = Assignment()
        self.lane, self.other = assignment.assign({PARTITION: 42, OTHER: 0})
        self.other.confirmed = Position(0, "")
        config = SimpleNamespace(guarantee=guarantee, commit_mode="async", commit_every=1, commit_interval=5.0)
        self.committer = Committer(
            cast("Any", config), cast("Any", self.client), assignment, Metrics(), lambda: self.now
        )
        self.lane.admit(a_task(offset=42).record)
        self.lane.wish = 43
        self.tick()

    def tick(self) -> None:
        self.now += 1.0
        self.committer.tick(self.now)

    def answer(self, number: int = 0, failure: KafkaFailure | None = None) -> None:
        self.committer.answered(self.client.sent[number], failure)

    def give_back(self, *lanes: Lane) -> None:
        self.committer.commit_now(lanes or (self.lane, self.other), working=True)


@pytest.fixture
def desk() -> Desk:
    return Desk()


def test_a_commit_under_way_is_overtaken_by_one_that_is_waited_for(desk: Desk) -> None:
    assert (desk.committer.in_flight, desk.lane.permit) == (True, -1)
    desk.give_back()
    assert (desk.committer.in_flight, desk.lane.permit) == (False, 43)
    assert [list(positions) for positions in desk.client.sync] == [[PARTITION]]


def test_it_is_overtaken_also_where_there_is_nothing_new_to_say(desk: Desk) -> None:
    """It may fail, after all."""
    desk.lane.confirmed = desk.client.sent[0][PARTITION]
    desk.give_back()
    assert (desk.committer.in_flight, len(desk.client.sync)) == (False, 1)


def test_a_failure_of_the_one_that_was_waited_for_is_a_failure(desk: Desk) -> None:
    desk.client.failure = FAILURE
    desk.give_back()
    assert (desk.committer.in_flight, desk.lane.permit, desk.lane.changed) == (False, -1, True)


@pytest.mark.parametrize("failure", [None, FAILURE])
def test_the_late_answer_says_nothing_of_the_commit_after_it(desk: Desk, failure: KafkaFailure | None) -> None:
    desk.give_back()
    desk.lane.wish = 50
    desk.tick()
    assert len(desk.client.sent) == 2
    desk.answer(0, failure)
    assert (desk.committer.in_flight, desk.lane.permit) == (True, 43)
    desk.answer(1)
    assert (desk.committer.in_flight, desk.lane.permit) == (False, 50)


def test_what_was_not_given_back_goes_on_waiting_for_its_answer(desk: Desk) -> None:
    """It comes when the rebalance is over, and counts."""
    desk.give_back(desk.other)
    assert (desk.committer.in_flight, desk.client.sync) == (True, [])
    desk.answer()
    assert (desk.committer.in_flight, desk.lane.permit) == (False, 43)


def test_a_lane_that_was_lost_is_not_waited_for(desk: Desk) -> None:
    desk.lane.close()
    desk.give_back(desk.other)
    assert (desk.committer.in_flight, desk.client.sync) == (False, [])
