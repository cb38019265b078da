"""Starts that resume from a checkpoint: which of them count as attempts, and which checkpoint is kept."""

from __future__ import annotations

from typing import Any

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import REQUESTS, STATES, World
from worker.codec import DEAD_LETTERED
from worker.process.crash_reports import CrashReport
from worker.process.status_block import Command

GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])


@pytest.mark.parametrize("reported", [False, True])
def test_a_task_that_crashes_whenever_it_resumes_becomes_a_dead_letter(world: World, reported: bool) -> None:
    """The first start has saved a checkpoint. Each later start crashes its process at once."""
    world.request("long", work=Work(50.0, reports=((1.0, b"one"),)))
    seen = []
    reports: list[CrashReport] = []
    for number in range(6):
        process = world.process(state_topic=STATES, long_after=60.0)
        process.status.report_crashes(reports if reported else [])
        world.until(lambda: process.starts or world.answers())  # noqa: B023
        if world.answers():
            break
        seen += [attempt for _, _, attempt in process.starts]
        world.run(3 if number == 0 else 0.001)
        reports = [CrashReport(process.token, REQUESTS, 0, 0, process.starts[-1][2])]
        world.crash(process)
    assert seen == [1, 1, 2, 3]
    assert [answer.outcome for answer in world.answers()] == [DEAD_LETTERED]


@GUARANTEES
def test_a_crash_of_a_task_that_resumes_after_a_drain_uses_up_an_attempt(world: World, guarantee: str) -> None:
    """The task has saved a checkpoint before the drain."""
    options: dict[str, Any] = {"state_topic": STATES, "long_after": 60.0, "guarantee": guarantee}
    world.request("long", work=Work(50.0, reports=((1.0, b"one"),)))
    first = world.process(**options)
    world.run(5)
    first.order(Command.CANCEL)
    world.until(lambda: first.exit_code is not None)
    seen = []
    for _ in range(4):
        process = world.process(**options)
        world.until(lambda: process.starts or world.answers())  # noqa: B023
        if world.answers():
            break
        seen += [attempt for _, _, attempt in process.starts]
        world.run(0.001)
        world.crash(process)
    assert seen == [1, 2, 3]


def test_a_checkpoint_that_follows_a_refused_one_is_kept(world: World) -> None:
    """The small checkpoint is saved while the topic refuses the large one."""
    reports = ((1.0, b"first"), (2.0, bytes(900_000)), (2.3, b"later"))
    world.request("long", work=Work(60.0, reports=reports))
    world.broker.topics[STATES].max_bytes = 100_000
    world.broker.topics[STATES].delay = 0.5
    world.process(state_topic=STATES, long_after=60.0)
    world.run(20)
    state = world.state(0)
    assert state is not None
    assert state.checkpoint == b"later"
