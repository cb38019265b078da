"""How much fits into the commit metadata of a partition that was just assigned."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import STATES
from worker.core.model import Verdict

if TYPE_CHECKING:
    from tests.process_fake.world import World


def test_cancelled_requests_of_a_partition_that_moves_fit_into_its_metadata(world: World) -> None:
    """The first owner has no room for them, so they wait. The second owner must detect that, too."""
    options: dict[str, Any] = {
        "guarantee": "exactly-once",
        "ordering": "unordered",
        "state_topic": STATES,
        "retry_first": 3_000.0,
        "retry_greatest": 3_000.0,
    }
    first = world.process(**options)
    world.until(lambda: first.owned == [0, 1])
    for number in (0, 1):
        world.move(number, first)
    for _ in range(420):
        world.request("odd", work=Work(0.001, Verdict.FAILED, retry_after=3_000.0, error="E"))
    world.run(100)
    for _ in range(4_000):
        world.request("even", work=Work(0.0002))
    world.run(20)
    second = world.process(**options)
    world.run(5)
    for _ in range(300):
        world.request("even", 1)
    world.move(1, second)
    world.until(lambda: sum(number == 1 for number, _ in world.answered()) == 300, seconds=100)
    for offset in range(370, 4_096, 17):
        world.cancel(offset)
    world.run(20)
    world.move(0, second)
    world.until(lambda: 0 in second.owned, seconds=100)
    world.run(60)
    assert (first.error, second.error) == (None, None)
    assert max(Counter(world.answered()).values()) == 1
