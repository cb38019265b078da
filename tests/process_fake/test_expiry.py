"""Requests with a deadline, which may have passed when their turn comes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from worker.codec import DEAD_LETTERED, EXPIRED, OK

if TYPE_CHECKING:
    from tests.process_fake.world import World


def request(world: World, deadline: bytes | None) -> None:
    world.request(headers=(("x-deadline", deadline),))


@pytest.mark.parametrize("deadline", [b"1", b"1700000000.5", b"2001-02-03T04:05:06Z", b"2001-02-03T04:05:06+02:00"])
def test_a_request_whose_deadline_has_passed_does_not_start(world: World, deadline: bytes) -> None:
    """It has an answer, and is no dead letter."""
    request(world, deadline)
    world.request()
    process = world.process()
    world.until(lambda: world.committed() == 2)
    assert process.starts == [(0, 1, 1)]
    late, good = world.answers()
    assert (late.outcome, late.isprocessed, late.error.type, late.attempt) == (EXPIRED, False, "Expired", 0)
    assert good.outcome == OK
    assert world.dead_letters() == []
    assert process.counter("tasks_total", "EXPIRED") == 1


@pytest.mark.parametrize("deadline", [b"9999999999", b"9999-01-01T00:00:00Z"])
def test_a_request_starts_before_its_deadline(world: World, deadline: bytes) -> None:
    request(world, deadline)
    world.process()
    world.until(lambda: world.committed() == 1)
    assert world.answers()[0].outcome == OK


@pytest.mark.parametrize("deadline", [None, b"", b"tomorrow", b"nan", b"2001-02-03T04:05:06", b"\xff"])
def test_a_request_with_a_malformed_deadline_is_a_dead_letter(world: World, deadline: bytes | None) -> None:
    """The worker cannot tell whether the request is still useful. The sender must learn of the mistake."""
    request(world, deadline)
    process = world.process()
    world.until(lambda: world.committed() == 1)
    assert process.starts == []
    assert [(answer.outcome, answer.error.type) for answer in world.answers()] == [(DEAD_LETTERED, "MalformedDeadline")]
    (dead_letter,) = world.dead_letters()
    assert dict(dead_letter.headers)["x-deadline"] == deadline


def test_an_expired_request_does_not_block_others_of_its_key(world: World) -> None:
    for key in (b"a", b"b"):
        world.request(headers=(("x-deadline", b"1"),), key=key)
        world.request(key=key)
    process = world.process(ordering="key")
    world.until(lambda: world.committed() == 4)
    assert sorted(offset for _, offset, _ in process.starts) == [1, 3]
