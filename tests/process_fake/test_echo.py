"""An answer has the chosen headers of its request, whatever its outcome."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import ACKS
from worker.codec import decode_response
from worker.core.model import Verdict

if TYPE_CHECKING:
    from tests.process_fake.world import World
    from worker.core.model import Headers

ECHOED = ("trace", "correlation-id")
GIVEN = (("trace", b"t-1"), ("secret", b"s"), ("correlation-id", None), ("trace", b"\xff"))
EXPECTED = (("trace", b"t-1"), ("correlation-id", None), ("trace", b"\xff"))
GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once", "exactly-once"])


def answered_with(world: World, count: int) -> list[Headers]:
    """Return the headers of the answers, in the order of their requests."""
    world.until(lambda: len(world.broker.records(ACKS)) == count)
    records = sorted(world.broker.records(ACKS), key=lambda record: decode_response(record.value).origin.offset)
    return [record.headers for record in records]


@GUARANTEES
def test_a_result_has_the_headers_of_its_request(world: World, guarantee: str) -> None:
    world.request(headers=GIVEN)
    world.request(headers=(("Trace", b"names are compared exactly"),))
    world.request()
    world.process(guarantee=guarantee, echo_headers=ECHOED)
    assert answered_with(world, 3) == [EXPECTED, (), ()]


@GUARANTEES
def test_the_answer_to_a_failed_or_expired_request_has_the_headers(world: World, guarantee: str) -> None:
    world.request("bad", work=Work(verdict=Verdict.REJECTED), headers=GIVEN)
    world.raw(b"\xff", headers=GIVEN)
    world.request("old", work=Work(verdict=Verdict.EXPIRED), headers=GIVEN)
    world.process(guarantee=guarantee, echo_headers=ECHOED)
    assert answered_with(world, 3) == [EXPECTED] * 3
    assert [record.headers[: len(GIVEN)] for record in world.dead_letters()] == [GIVEN] * 2


@GUARANTEES
def test_a_result_that_fits_only_without_the_headers_is_sent_without_them(world: World, guarantee: str) -> None:
    world.request("long", work=Work(result=b"x" * 900), headers=(("trace", b"t" * 900),))
    world.process(guarantee=guarantee, echo_headers=ECHOED, max_answer_bytes=1_500)
    assert answered_with(world, 1) == [()]
    assert [answer.result for answer in world.answers()] == [b"x" * 900]


@GUARANTEES
def test_an_answer_that_its_topic_refuses_is_sent_without_the_headers(world: World, guarantee: str) -> None:
    world.request("bad", work=Work(verdict=Verdict.REJECTED), headers=(("trace", b"t" * 2_000),))
    world.broker.topics[ACKS].max_bytes = 1_000
    world.process(guarantee=guarantee, echo_headers=ECHOED)
    assert answered_with(world, 1) == [()]
