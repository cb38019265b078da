"""Detached tasks on the state topic: their records, their checkpoints, and cancel requests for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import STATES, World
from worker.codec import CANCELLED, DEAD_LETTERED, OK
from worker.core.model import Verdict
from worker.core.task_state import DETACHED
from worker.kafka.ports import KafkaFailure
from worker.testing.group_calls import FakeGroupClient

if TYPE_CHECKING:
    from tests.process_fake.world import Process

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


def detached(world: World, guarantee: str, work: Work, **more: Any) -> tuple[Process, Process]:
    """Return the holder of a detached task, and the owner of its partition."""
    options = {"state_topic": STATES, "long_after": 60.0, "guarantee": guarantee, "hold": 3.0, **more}
    world.request("long", work=work)
    holder = world.process(**options)
    world.run(5)
    owner = world.process(**options)
    world.move(0, owner)
    world.run(10)
    assert 0 in owner.owned
    assert owner.starts == []
    return holder, owner


@GUARANTEES
def test_the_holder_keeps_the_record_until_the_task_is_answered(world: World, guarantee: str) -> None:
    detached(world, guarantee, Work(300.0))
    for _ in range(6):
        world.run(20)
        state = world.state(0)
        assert state is not None
        assert state.state == DETACHED
    world.until(lambda: [answer.outcome for answer in world.answers()] == [OK])
    world.until(lambda: world.state(0) is None, seconds=20)


@GUARANTEES
def test_the_holder_keeps_sending_heartbeats(world: World, guarantee: str) -> None:
    detached(world, guarantee, Work(300.0))
    before = len(world.broker.records(STATES))
    world.run(61)
    assert len(world.broker.records(STATES)) >= before + 5


@GUARANTEES
def test_the_next_attempt_resumes_from_the_checkpoint_of_a_detached_task(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee, Work(500.0, reports=((1.0, b"one"), (100.0, b"two"))))
    world.run(120)
    world.crash(holder)
    world.until(lambda: len(owner.starts) == 1)
    assert owner.service.resumes == [b"two"]


@GUARANTEES
@pytest.mark.parametrize(("reports", "outcome"), [(((1.0, b"one"),), OK), ((), DEAD_LETTERED)])
def test_the_death_of_a_holder_uses_up_an_attempt_only_without_a_checkpoint(
    world: World, guarantee: str, reports: tuple[tuple[float, bytes], ...], outcome: int
) -> None:
    """As for other tasks, the start that resumes from a checkpoint is the same attempt."""
    holder, owner = detached(world, guarantee, Work(500.0, reports=reports), max_attempts=1)
    world.crash(holder)
    world.until(world.answers)
    assert [(answer.outcome, answer.attempt) for answer in world.answers()] == [(outcome, 1)]
    assert owner.service.resumes == ([b"one"] if reports else [])


@GUARANTEES
@pytest.mark.parametrize(
    ("reports", "outcomes"),
    [
        (((1.0, b"one"),), [(OK, 1)]),
        ((), [(DEAD_LETTERED, 1)]),
        (((300.0, b"too late"),), [(DEAD_LETTERED, 1)]),  # the state topic does not have it
    ],
)
def test_the_death_of_a_holders_child_uses_up_an_attempt_only_without_a_checkpoint(
    world: World, guarantee: str, reports: tuple[tuple[float, bytes], ...], outcomes: list[tuple[int, int]]
) -> None:
    died = Work(300.0, Verdict.FAILED, error="ProcessDied", reports=reports)
    _, owner = detached(world, guarantee, died, max_attempts=1)
    world.script["long"] = Work(1.0)
    world.until(world.answers)
    assert [(answer.outcome, answer.attempt) for answer in world.answers()] == outcomes
    assert owner.service.resumes == ([b"one"] if outcomes == [(OK, 1)] else [])


@GUARANTEES
def test_a_detached_task_is_cancelled_by_its_holder(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee, Work(500.0, obeys=2.0))
    world.cancel(0)
    world.until(lambda: [answer.outcome for answer in world.answers()] == [CANCELLED], seconds=30)
    world.until(lambda: not world.table.cancels, seconds=10)
    world.until(lambda: world.committed() == 1, seconds=30)
    assert (len(holder.starts), owner.starts) == (1, [])
    world.until(lambda: world.state(0) is None, seconds=20)


def test_a_cancelled_task_stays_cancelled_when_its_holder_dies_before_the_mark(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The owner of the partition cannot know the answer, so the state must still say that the task was cancelled."""
    monkeypatch.setattr(FakeGroupClient, "commit", lambda *_: KafkaFailure("_TIMED_OUT", "no reply"))
    holder, owner = detached(world, "at-least-once", Work(500.0, obeys=2.0))
    world.cancel(0)
    world.until(lambda: [answer.outcome for answer in world.answers()] == [CANCELLED], seconds=30)
    world.run(2)
    world.crash(holder)
    world.until(lambda: world.committed() == 1)
    assert {answer.outcome for answer in world.answers()} == {CANCELLED}
    assert owner.starts == []
    world.until(lambda: not world.table.cancels and world.state(0) is None, seconds=20)


@GUARANTEES
def test_the_attempt_after_a_failure_resumes_from_the_last_checkpoint(world: World, guarantee: str) -> None:
    """The topic does not have this checkpoint yet when the attempt ends: an earlier record is still being written."""
    reports = ((299.999, b"one"), (300.0, b"last"))
    _, owner = detached(world, guarantee, Work(300.0, Verdict.FAILED, reports=reports))
    world.script["long"] = Work(1.0)
    world.until(world.answers, seconds=400)
    assert [(answer.outcome, answer.attempt) for answer in world.answers()] == [(OK, 2)]
    assert owner.service.resumes == [b"last"]


@GUARANTEES
def test_the_record_stays_when_the_partition_moves_back_to_the_holder(world: World, guarantee: str) -> None:
    holder, owner = detached(world, guarantee, Work(500.0, reports=((1.0, b"one"),)))
    world.move(0, holder)
    world.run(10)
    assert 0 in holder.owned
    before = len(world.broker.records(STATES))
    world.run(45)
    state = world.state(0)
    assert state is not None
    assert (state.state, state.checkpoint) == (DETACHED, b"one")
    assert len(world.broker.records(STATES)) >= before + 3
    world.until(lambda: [answer.outcome for answer in world.answers()] == [OK])
    world.until(lambda: world.state(0) is None, seconds=20)
    assert (len(holder.starts), owner.starts) == (1, [])
