"""Cancel requests that race against the end of a request that waits for another attempt, or is detached.

Each request has one answer, of either outcome. ``E2E_LONG=1`` runs 1,000 races in each test. The races of running
tasks are in test_cancel.py.
"""

from __future__ import annotations

import functools
import random
from collections import Counter
from typing import Any

import pytest

from tests.long_form import LONG
from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import STATES, World
from worker.codec import CANCELLED, DEAD_LETTERED

PARTITIONS = 4
GUARANTEES = ["at-least-once", "at-most-once", "exactly-once"]
RACES = 1_000 if LONG else 20
pytestmark = pytest.mark.timeout(60 + 2 * RACES)
AT_ONCE = 10  # requests at a time that wait for another attempt


def outcomes(world: World, number: int = 0) -> Counter[int]:
    """Return how often each outcome occurs. Fail if a request was answered twice."""
    answers = [answer for answer in world.answers() if answer.origin.partition == number]
    assert len({answer.origin.offset for answer in answers}) == len(answers)
    return Counter(answer.outcome for answer in answers)


def settle(world: World, count: int) -> Counter[int]:
    """Wait until all requests are answered and no record is left on the state topic. Return the outcomes."""
    world.until(lambda: outcomes(world).total() == count, seconds=120)
    world.until(lambda: not (world.table.cancels or world.table.states), seconds=60)
    return outcomes(world)


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_cancel_request_that_races_against_an_attempt_leads_to_one_answer(world: World, guarantee: str) -> None:
    """Each request fails twice. At-most-once is left out, because it has only one attempt."""
    random.seed(8)
    options: dict[str, Any] = {"max_attempts": 2, "retry_first": 0.2, "retry_greatest": 0.2}
    world.process(guarantee=guarantee, ordering="unordered", long_after=0.05, state_topic=STATES, **options)
    for _ in range(RACES // AT_ONCE):
        for offset in [world.request("raced", work=failing(0.01 + random.random() / 50)) for _ in range(AT_ONCE)]:
            world.clock.after(random.uniform(0.1, 0.9), functools.partial(world.cancel, offset))
        world.run(0.9)
    found = settle(world, RACES)
    assert set(found) == {DEAD_LETTERED, CANCELLED}
    assert len(world.dead_letters()) == found[DEAD_LETTERED]


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_cancel_request_that_races_against_a_detached_task_leads_to_one_answer(world: World, guarantee: str) -> None:
    """The task runs in one process, and another process owns its partition."""
    random.seed(9)
    processes = [
        world.process(
            guarantee=guarantee, ordering="unordered", long_after=3.0, max_poll_interval=45.0, state_topic=STATES
        )
        for _ in range(2)
    ]
    world.run(20)
    for _ in range(RACES):
        offset = world.request("raced", work=Work(15.0, obeys=random.random() / 10))
        for number in range(4):
            world.quick(number, 5)
        world.clock.after(random.uniform(14.5, 15.5), functools.partial(world.cancel, offset))
        world.run(18)
    found = settle(world, RACES * 6)
    assert found[CANCELLED] > 0
    assert sum(process.counter("detached_total") for process in processes) > RACES / 4
