"""When a process gives way, and how soon another one starts with its partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from unittest.mock import MagicMock

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import GROUP, REQUESTS, STATES, World
from worker.core.detached import client_id_of
from worker.executors.port import Running
from worker.kafka.ports import KafkaFailure, MemberView
from worker.testing.group_calls import FakeGroupClient

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def wide() -> Iterator[World]:
    """Yield a world with more partitions than members."""
    made = World(partitions=4)
    yield made
    made.clock.close()


def test_when_all_have_given_way_one_takes_part_again(world: World) -> None:
    """Two processes start a long task at the same time. Each sees the other as a process that can take its work."""
    for number in (0, 1):
        world.request(f"long-{number}", number, work=Work(600.0))
    pair = [world.process(state_topic=STATES, long_after=3.0, ordering="unordered") for _ in range(2)]
    world.until(lambda: all(process.starts for process in pair))
    for number in range(20):
        world.request(f"short-{number}", number % 2, work=Work(0.1))
    world.run(60)
    assert sorted(partition for process in pair for partition in process.owned) == [0, 1]
    world.until(lambda: len(world.answered()) == 22)
    assert sum(len(process.starts) for process in pair) == 22


@pytest.mark.parametrize("ordering", ["key", "unordered"])
def test_a_process_gives_way_for_requests_that_its_executor_has(wide: World, ordering: str) -> None:
    """After short tasks, the executor gets several requests at a time. The first one happens to be long."""
    pair = [wide.process(state_topic=STATES, long_after=3.0, ordering=ordering) for _ in range(2)]
    wide.run(20)
    wide.quick()
    wide.until(lambda: len(wide.answered()) == 30)
    wide.request("long", 0, key=b"a", work=Work(600.0))
    wide.request("short", 0, key=b"b", work=Work(0.02))
    wide.until(lambda: len(wide.answered()) == 31, 12.0)
    wide.until(lambda: len(wide.answered()) == 32)
    assert sum(len(process.starts) for process in pair) == 32


def test_a_process_gives_way_to_a_new_member_at_once(wide: World) -> None:
    """It does not wait for the heartbeat that gives the new member its first partitions."""
    wide.request("long", 0, work=Work(600.0))
    holder = wide.process(state_topic=STATES, long_after=3.0, ordering="unordered")
    wide.until(lambda: holder.starts)
    wide.request("short", 1)
    wide.run(30)
    assert holder.counter("gave_way_total") == 0
    newcomer = wide.broker.consumer(GROUP)
    newcomer.client_id = client_id_of("newcomer", "ffffffff")
    newcomer.subscribe([REQUESTS], MagicMock(), MagicMock())
    wide.until(lambda: holder.counter("gave_way_total"), 3.0)
    wide.until(lambda: holder.owned == [], 3.0)


def test_a_process_with_a_short_task_in_an_extra_slot_does_not_give_way(wide: World) -> None:
    """The slot will be free soon."""
    wide.request("long", 0, work=Work(600.0))
    pair = [wide.process(state_topic=STATES, long_after=3.0, ordering="unordered") for _ in range(2)]
    wide.until(lambda: any(one.starts for one in pair))
    (holder,) = [one for one in pair if one.starts]
    long = holder.service.running
    assert long is not None
    holder.service.beside = [Running(long.task, 0.5, [long.task])]
    for number in range(20):
        wide.request(f"short-{number}", number % 4, work=Work(0.1))
    wide.run(30)
    assert holder.counter("gave_way_total") == 0
    holder.service.beside = ()
    wide.until(lambda: holder.counter("gave_way_total"), 5.0)


def test_a_task_that_reports_progress_is_long_at_once(wide: World) -> None:
    """Other requests do not wait for it, although ``WORKER_LONG_AFTER`` is far from over."""
    wide.request("long", 0, work=Work(600.0, reports=((0.1, 0.01),)))
    pair = [wide.process(state_topic=STATES, long_after=300.0, ordering="unordered") for _ in range(2)]
    wide.until(lambda: any(one.starts for one in pair))
    for number in range(20):
        wide.request(f"short-{number}", number % 4, work=Work(0.1))
    wide.until(lambda: len(wide.answered()) == 20, 20.0)


def test_a_failed_view_of_the_group_is_logged_and_requested_again(
    wide: World, lines: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a view no process gives way, and without the log an operator cannot tell why."""
    members, end = FakeGroupClient.members, wide.clock() + 20

    def fail_at_first(client: FakeGroupClient, group: str) -> list[MemberView] | KafkaFailure:
        return KafkaFailure("_TIMED_OUT", "scripted") if wide.clock() < end else members(client, group)

    monkeypatch.setattr(FakeGroupClient, "members", fail_at_first)
    wide.request("long", 0, work=Work(600.0))
    pair = [wide.process(state_topic=STATES, long_after=3.0, ordering="unordered") for _ in range(2)]
    wide.until(lambda: any(one.starts for one in pair))
    for number in range(20):
        wide.request(f"short-{number}", number % 4, work=Work(0.1))
    wide.until(lambda: len(wide.answered()) == 20)
    failures = [line for line in lines if line["event"] == "client.error" and line["code"] == "_TIMED_OUT"]
    assert len(failures) >= 2
    assert failures[0]["reason"] == "scripted"


def test_a_partition_starts_as_soon_as_its_states_are_known(world: World) -> None:
    """The consumer tries again in its next poll. It does not pause, as it does when the coordinator is unavailable."""
    world.request("task")
    process = world.process(state_topic=STATES)
    world.until(lambda: process.starts, 0.5)
