"""Partitions that a process loses, or that come back to it, while tasks run."""

from __future__ import annotations

import pytest

from tests.process_fake.scene import CANCEL_GRACE, scene
from tests.process_fake.stand_ins import Work
from tests.process_fake.world import ACKS, World


def test_a_result_that_comes_after_the_end_of_its_lease_is_dropped(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The task ends just before the loss, and the poll thread does not know it yet. So it is not cancelled."""
    at = scene(world, Work(seconds=5.0))
    world.until(lambda: len(at.process.starts) == 3)
    world.run(1)
    poll = at.process.consumer.poll

    def finish_and_lose(limit: int, timeout: float) -> object:
        monkeypatch.undo()
        at.process.service._finish()
        world.broker.group("group").leave(at.process.consumer)
        return poll(limit, timeout)

    monkeypatch.setattr(at.process.consumer, "poll", finish_and_lose)
    world.run(3)
    assert at.process.service.cancelled == []
    assert world.answered() == [(0, 0), (0, 1)]
    assert at.process.counter("dropped_total") == 1
    world.until(lambda: world.committed() == 3)
    assert world.answered() == [(0, 0), (0, 1), (0, 2)]


# ---------------------------------------------------------------- assigned


def test_a_partition_that_comes_back_has_a_new_lease(world: World) -> None:
    """Tasks that were queued under the old lease are dropped, and read again from the committed offset."""
    at = scene(world, Work(seconds=1.0))
    world.move(0, at.rival)
    at.move_away()
    world.move(0, at.process)
    world.until(lambda: world.committed() == 3)
    assert [offset for _, offset, _ in at.process.starts] == [0, 1, 2]
    assert world.answered() == [(0, 0), (0, 1), (0, 2)]


# ---------------------------------------------------------------- lost


def test_a_lost_task_is_cancelled_and_not_settled(world: World) -> None:
    """The partitions may already have another owner, so the process sends no answer and commits no offset of them."""
    at = scene(world, Work(seconds=300.0, obeys=1.0), max_poll_interval=50.0)
    before = len(world.broker.group("group").commits)
    world.broker.group("group").leave(at.process.consumer)
    world.until(lambda: at.process.service.cancelled)
    assert [reason for _, reason in at.process.service.cancelled] == ["revoked"]
    world.run(10)
    assert world.answers() == []
    assert at.process.counter("dropped_total") >= 1
    assert at.process.counter("rebalances_total", "lost") == 1
    # The next lease commits its metadata at the offset where the lease before it began.
    commits = world.broker.group("group").commits[before:]
    assert [offset for member, _, offset in commits if member == at.process.consumer.name and offset] == []


def test_a_lost_task_that_ignores_its_cancellation_ends_its_process(world: World) -> None:
    """The partition comes back at once, and its tasks would wait behind a task whose result is dropped."""
    at = scene(world, Work(seconds=100.0, obeys=None))
    world.broker.group("group").leave(at.process.consumer)
    world.until(lambda: at.process.exit_code is not None, seconds=CANCEL_GRACE + 3)
    assert world.answers() == []
    world.process()
    world.move(0, at.rival)


def test_a_failed_answer_is_not_repeated_after_the_partition_is_lost(world: World) -> None:
    """The next owner answers the request. A repeated answer would be a second one, perhaps hours later."""
    world.broker.fail(ACKS, "NOT_ENOUGH_REPLICAS")
    at = scene(world, Work(seconds=1.0))
    world.until(lambda: at.process.counter("delivery_failures_total", "NOT_ENOUGH_REPLICAS"))
    world.move(0, at.rival)
    world.broker.group("group").leave(at.process.consumer)
    at.move_away()
    world.run(30)
    assert world.answers() == []
    assert at.process.loop._responder.outstanding == 0


def test_a_request_is_not_answered_if_its_lease_is_lost_during_its_dead_letter(world: World) -> None:
    """The dead letter is not confirmed yet. The new owner dead-letters the request again and sends the only answer."""
    world.broker.topics["requests.dlq"].delay = 5.0
    world.raw(b"\xff")
    process = world.process()
    world.until(lambda: process.producer.produced)
    rival = world.rival()
    world.move(0, rival)
    world.broker.group("group").leave(process.consumer)
    world.run(30)
    assert world.answers() == []
    assert process.loop._responder.outstanding == 0


@pytest.mark.parametrize("seconds", [20.0, 200.0])
def test_a_process_that_holds_longer_than_the_group_waits_loses_the_lease(world: World, seconds: float) -> None:
    """The group gives its partitions to others, so the answer of the held task is not committed."""
    at = scene(world, Work(seconds=seconds), max_poll_interval=100.0)
    world.move(0, at.rival)
    at.move_away()
    world.run(seconds)
    assert world.committed() == (1 if seconds < 100 else None)
    assert at.process.counter("rebalances_total", "lost") == (0 if seconds < 100 else 1)
    assert at.process.error is None
