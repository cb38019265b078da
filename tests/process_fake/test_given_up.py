"""Tasks that ignore their cancellation and are given up, which uses up no attempt."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.test_detached_records import detached
from worker.process.status_block import Command

if TYPE_CHECKING:
    from tests.process_fake.world import World

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


@GUARANTEES
@pytest.mark.parametrize("obeys", [1.0, None])
def test_a_drain_that_gives_up_a_detached_task_uses_up_no_attempt(
    world: World, guarantee: str, obeys: float | None
) -> None:
    holder, owner = detached(world, guarantee, Work(5_000.0, obeys=obeys), hold=1_000.0)
    assert holder.counter("detached_total") == 1
    holder.order(Command.CANCEL)
    world.until(lambda: holder.exit_code is not None, seconds=60)
    holder.service.kill()
    world.until(lambda: owner.starts, seconds=200)
    assert owner.starts == [(0, 0, 1)]


@GUARANTEES
@pytest.mark.parametrize("obeys", [1.0, None])
def test_a_revocation_that_gives_up_a_task_uses_up_no_attempt(
    world: World, guarantee: str, obeys: float | None
) -> None:
    """Without a state topic the task is not detached."""
    world.request("long", work=Work(5_000.0, obeys=obeys))
    first = world.process(guarantee=guarantee, hold=3.0)
    world.until(lambda: first.starts)
    world.run(2)
    second = world.process(guarantee=guarantee, hold=3.0)
    world.move(0, second)
    world.until(lambda: second.starts, seconds=100)
    assert second.starts == [(0, 0, 1)]


def test_under_at_most_once_a_task_that_a_revocation_gives_up_does_not_start_again(world: World) -> None:
    world.request("long", work=Work(5_000.0, obeys=None))
    first = world.process(guarantee="at-most-once", hold=3.0)
    world.until(lambda: first.starts)
    world.run(2)
    second = world.process(guarantee="at-most-once", hold=3.0)
    world.move(0, second)
    world.run(100)
    assert second.starts == []
