"""Orderings ``key`` and ``unordered``: a waiting request delays no others, and no answered request runs again."""

from __future__ import annotations

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import ACKS, DEAD, World
from worker.codec import DEAD_LETTERED, decode_response
from worker.core.model import FollowUp, Verdict
from worker.errors import ExitCode

LATER = failing(retry_after=600.0)


def test_an_unordered_retry_delays_no_other_request(world: World) -> None:
    """The requests behind it are answered while it waits. Only the committed offset does not pass it."""
    world.request("broken", work=[LATER, Work()], key=b"k")
    for _ in range(100):
        world.request(key=b"k")
    process = world.process(ordering="unordered")
    world.until(lambda: len(world.answers()) == 100, seconds=60)
    assert [offset for _, offset, _ in process.starts] == list(range(101))
    world.run(1)
    assert world.committed() is None
    assert world.noted().completed == ((1, 101),)
    world.until(lambda: world.committed() == 101)
    assert process.starts[-1] == (0, 0, 2)


def test_many_unordered_retries_delay_no_other_request(world: World) -> None:
    """The process fetches the requests behind them, however many retries wait."""
    for _ in range(20):
        world.request("broken", work=[LATER, Work()])
    for _ in range(50):
        world.request()
    world.process(ordering="unordered")
    world.until(lambda: len(world.answers()) == 50, seconds=60)
    world.until(lambda: world.committed() == 70)


def test_a_retry_delays_only_the_requests_of_its_key(world: World) -> None:
    """After it the requests of its key start in order."""
    world.request("broken", work=[LATER, Work()], key=b"a")
    for _ in range(20):
        for key in (b"a", b"b", None):
            world.request(key=key)
    process = world.process(ordering="key")
    world.until(lambda: len(world.answers()) == 40, seconds=60)
    world.run(10)
    assert len(world.answers()) == 40
    world.until(lambda: world.committed() == 61)
    of_a = [offset for _, offset, _ in process.starts if offset % 3 == 1 or not offset]
    assert of_a == [0, 0, *range(1, 61, 3)]


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_a_request_that_was_answered_out_of_order_does_not_run_again(world: World, ordering: str) -> None:
    """The next process reads the completed offsets from the commit metadata, also after a crash."""
    world.request("broken", work=[LATER, Work()], key=b"a")
    for _ in range(50):
        world.request(key=b"b")
    process = world.process(ordering=ordering)
    world.until(lambda: len(world.answers()) == 50)
    world.run(5)
    world.crash(process)
    successor = world.process(ordering=ordering)
    world.until(lambda: world.committed() == 51)
    assert [offset for _, offset, _ in successor.starts] == [0]
    assert len(world.answers()) == 51


def test_a_deploy_may_change_the_ordering(world: World) -> None:
    """The completed offsets in the commit metadata are valid under any ordering."""
    world.request("broken", work=[LATER, Work()])
    for _ in range(10):
        world.request()
    process = world.process(ordering="unordered")
    world.until(lambda: len(world.answers()) == 10)
    assert world.leave(process) == [ExitCode.DRAINED]
    successor = world.process(ordering="partition")
    world.until(lambda: world.committed() == 11)
    assert successor.starts == [(0, 0, 2)]


def test_commit_metadata_never_exceed_the_size_that_a_commit_may_have(world: World) -> None:
    """Every second request waits for its next attempt, until no new task may start. Later all are answered."""
    for offset in range(1_000):
        world.request("odd" if offset % 2 else "even", work=[LATER, Work()] if offset % 2 else Work(seconds=0.001))
    process = world.process(ordering="unordered")
    texts: list[int] = []
    commit = process.consumer.commit

    def watched(positions: dict[object, tuple[int, str]]) -> None:
        texts.extend(len(text) for _, text in positions.values())
        commit(positions)  # type: ignore[arg-type]

    process.consumer.commit = watched  # type: ignore[assignment, method-assign]
    world.run(500)
    stuck = len(process.starts)
    world.run(50)
    assert len(process.starts) == stuck < 1_000
    world.until(lambda: world.committed() == 1_000, seconds=40_000)
    assert 2_000 < max(texts) <= 4_095
    assert len(world.answers()) == 1_000


def test_a_dead_letter_does_not_block_its_key(world: World) -> None:
    """The next request of the key starts after the last attempt."""
    world.request("broken", work=failing(), key=b"a")
    world.request(key=b"a")
    process = world.process(ordering="key", max_attempts=2)
    world.until(lambda: world.committed() == 2)
    assert process.starts == [(0, 0, 1), (0, 0, 2), (0, 1, 1)]
    assert world.answers()[0].outcome == DEAD_LETTERED


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_a_revoked_partition_moves_with_its_completed_offsets(world: World, ordering: str) -> None:
    """The new owner of the partition runs only the rest."""
    world.request("broken", work=[LATER, Work()], key=b"a")
    for _ in range(10):
        world.request(key=b"b")
    process = world.process(ordering=ordering)
    world.until(lambda: len(world.answers()) == 10)
    successor = world.process(ordering=ordering)
    world.move(0, successor)
    world.until(lambda: world.committed() == 11)
    assert successor.starts == [(0, 0, 2)]
    assert len(process.starts) == 11


@pytest.mark.parametrize("ordering", ["partition", "key"])
@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once", "exactly-once"])
def test_the_answers_of_an_ordering_group_are_in_order(world: World, ordering: str, guarantee: str) -> None:
    """This holds also if an answer has to wait for its dead letter or its follow-up requests."""
    world.broker.create("next", 2)
    world.broker.topics["next"].delay = world.broker.topics[DEAD].delay = 0.5
    world.script = {
        "quick": Work(seconds=0.001),
        "sends": Work(seconds=0.001, sent=(FollowUp("next", None, "a"),)),
        "rejected": Work(0.001, Verdict.REJECTED),
    }
    for payload in (*["quick"] * 60, "malformed", "quick", "sends", *["quick"] * 5, "rejected", "quick"):
        if payload == "malformed":
            world.raw(b"\xff", key=b"k")
        else:
            world.request(payload, key=b"k")
    world.process(ordering=ordering, guarantee=guarantee)
    world.until(lambda: len(world.answers()) == 70)
    assert [decode_response(record.value).origin.offset for record in world.broker.records(ACKS)] == list(range(70))
    world.until(lambda: world.committed() == 70)


@pytest.mark.parametrize("ordering", ["partition", "key"])
def test_a_process_sleeps_while_a_dead_letter_cannot_be_delivered(world: World, ordering: str) -> None:
    """The answer behind the dead letter waits, and there is nothing to flush."""
    world.broker.fail(DEAD, "NOT_ENOUGH_REPLICAS", 3)
    world.request("rejected", key=b"k", work=[Work(0.001, Verdict.REJECTED)])
    world.request(key=b"k")
    world.process(ordering=ordering)
    world.until(lambda: len(world.answers()) == 2, seconds=10)
    assert [decode_response(record.value).origin.offset for record in world.broker.records(ACKS)] == [0, 1]
