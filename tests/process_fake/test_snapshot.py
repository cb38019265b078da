"""What the supervisor can read in the status block of a process."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import World
from worker.core.lifecycle import State
from worker.process.status_block import Command
from worker.vocabulary import METRICS

if TYPE_CHECKING:
    import pytest


def seen(process: Any) -> dict[str, Any]:
    snapshot: dict[str, Any] | None = process.status.read()
    assert snapshot is not None
    return snapshot


def test_the_snapshot_shows_what_a_process_does(world: World) -> None:
    """It has the state, the protocol, the partitions and the running task."""
    world.request("quick", 1)
    process = world.process()
    world.until(lambda: world.committed(1) == 1)
    world.request("long", 0, work=Work(seconds=100.0))
    world.request("long", 0)
    world.until(lambda: (0, 0, 1) in process.starts)
    world.run(10)
    snapshot = seen(process)
    assert (snapshot["state"], snapshot["protocol"]) == ("running", "consumer")
    assert snapshot["partitions"]["requests[1]"] == {"queued": 0, "committed": 1, "detached": []}
    assert snapshot["partitions"]["requests[0]"]["committed"] == 0, "noted before its start"
    task = snapshot["task"]
    assert (task["topic"], task["partition"], task["offset"], task["attempt"]) == ("requests", 0, 0, 1)
    assert task["pid"] == os.getpid(), "it runs in this process"
    assert snapshot["gauges"]["busy"] == 1
    assert snapshot["gauges"]["assigned_partitions"] == 2
    assert snapshot["gauges"]["state"] == State.RUNNING


def test_the_snapshot_is_never_older_than_a_second(world: World) -> None:
    """This holds while a task runs and while the process is idle."""
    process = world.process()
    for payload in ("", "long"):
        world.request(payload, work=Work(seconds=30.0) if payload else None)
        world.run(10)
        before = seen(process)["counters"]["polls_total"]
        world.run(1)
        assert seen(process)["counters"]["polls_total"] > before


def test_the_snapshot_is_not_made_at_every_turn(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes more time than everything else in a turn without events."""
    world.request("long", work=Work(seconds=100.0))
    process = world.process()
    world.until(lambda: process.starts)
    published: list[object] = []
    monkeypatch.setattr(process.status, "publish", published.append)
    world.run(20)
    assert 20 <= len(published) <= 60


def test_the_numbers_in_the_snapshot_add_up(world: World) -> None:
    """Every attempt has a verdict, and every answer an outcome."""
    world.request("flaky", work=[failing(seconds=2.0), Work(seconds=2.0)])
    world.raw(b"\xff")
    world.request("quick", work=Work(seconds=0.5))
    process = world.process()
    world.until(lambda: world.committed() == 3)
    world.leave(process)
    snapshot = seen(process)
    counters = snapshot["counters"]
    assert counters["attempts_total"] == {"failed": 1, "ok": 2}
    assert counters["tasks_total"] == {"OK": 2, "DEAD_LETTERED": 1}
    assert counters["dead_letters_total"] == 1
    assert abs(counters["task_seconds_total"] - 4.5) < 0.01
    *buckets, total = snapshot["histograms"]["run_seconds"]
    assert sum(buckets) == 3
    assert abs(total - 4.5) < 0.01
    assert sum(snapshot["histograms"]["settle_seconds"][:-1]) == 3
    assert snapshot["state"] == "closed"


def test_all_metrics_in_the_snapshot_are_in_the_vocabulary(world: World) -> None:
    """Dashboards are written from the vocabulary, so they do not show a metric that it does not have."""
    world.broker.fail("acks", "NOT_ENOUGH_REPLICAS")
    world.broker.fail_commits("NOT_COORDINATOR")
    world.raw(b"\xff")
    world.request("flaky", work=[failing(), Work()])
    for _ in range(20):
        world.request("long", work=Work(seconds=10.0))
    process = world.process()
    world.until(lambda: world.committed() == 5)
    process.order(Command.CANCEL)
    world.until(lambda: process.exit_code is not None)
    snapshot = seen(process)
    kinds = {metric.name: metric for metric in METRICS}
    for name, value in snapshot["counters"].items():
        assert kinds[name].kind == "counter"
        assert (kinds[name].label is not None) == isinstance(value, dict), name
    assert {kinds[name].kind for name in snapshot["gauges"]} == {"gauge"}
    assert {kinds[name].kind for name in snapshot["histograms"]} == {"histogram"}


def test_the_stamp_has_turns_state_partitions_and_pid(world: World) -> None:
    process = world.process(started=False)
    assert process.status.read_stamp().turns == 0
    world.run(5)
    stamp = process.status.read_stamp()
    assert stamp.turns > 5
    assert (stamp.state, stamp.assigned) == (State.JOINING, 2)
    assert stamp.pid > 0


def test_many_partitions_do_not_hide_the_numbers() -> None:
    """The status block has no room for the list of more than a thousand partitions, so the list is left out."""
    world = World(partitions=1_500)
    process = world.process()
    world.run(5)
    snapshot = seen(process)
    assert snapshot["gauges"]["assigned_partitions"] == 1_500
    assert len(json.dumps(snapshot)) < 64 * 1024
    world.clock.close()


def test_the_snapshot_has_gauges_to_scale_by(world: World) -> None:
    """The lag counts waiting and running tasks. A task counts as long when it has run for ``long_after``."""
    world.request("long", work=Work(seconds=100.0))
    for _ in range(4):
        world.request("quick")
    process = world.process(long_after=20.0)
    world.until(lambda: process.starts)
    world.run(5)
    assert [seen(process)["gauges"][name] for name in ("lag", "busy", "busy_long")] == [5, 1, 0]
    world.run(20)
    assert [seen(process)["gauges"][name] for name in ("lag", "busy", "busy_long")] == [5, 1, 1]
    world.until(lambda: world.committed() == 5)
    world.run(2)
    assert [seen(process)["gauges"][name] for name in ("lag", "busy", "busy_long")] == [0, 0, 0]
