"""Records of long tasks on the state topic: when they are written, how starts resume, when they are removed."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

import pytest

from tests.process_fake.stand_ins import StandInExecutor, Work, failing
from tests.process_fake.world import GROUP, REQUESTS, STATES, World
from worker.codec import CANCELLED, OK
from worker.core.task_state import CANCELLING, RUNNING, WAITING, Origin, TaskState
from worker.errors import ExitCode
from worker.process.status_block import Command
from worker.state.records import decode, encode_state, state_key

if TYPE_CHECKING:
    from tests.process_fake.world import Process

GUARANTEES = ["at-least-once", "at-most-once", "exactly-once"]
ORIGIN = Origin(REQUESTS, 0, 0)


def start(world: World, **options: object) -> Process:
    options = {"state_topic": STATES, "long_after": 60.0, "retry_first": 1.0, "max_attempts": 3} | options
    return world.process(**options)  # type: ignore[arg-type]


def known(world: World) -> TaskState:
    """Return the record of the first request, which must exist."""
    state = world.state(0)
    assert state is not None
    return state


def resumes(process: Process) -> list[bytes | None]:
    """Return the checkpoint that each start resumed from."""
    return process.service.resumes


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_short_task_writes_nothing_to_the_state_topic(world: World, guarantee: str) -> None:
    process = start(world, guarantee=guarantee)
    for number in range(20):
        world.request(f"task-{number}", work=Work(1.0))
    world.until(lambda: len(world.answers()) == 20)
    world.leave(process)
    assert world.broker.records(STATES) == []


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_long_task_has_a_record_until_it_is_answered(world: World, guarantee: str) -> None:
    """The record is written after WORKER_LONG_AFTER, and then at least every ten seconds until the task is answered."""
    world.request("long", work=Work(100.0))
    process = start(world, guarantee=guarantee)
    world.run(59)
    assert world.broker.records(STATES) == []
    world.run(3)
    state = known(world)
    assert (state.state, state.attempt, state.epoch, state.sequence) == (RUNNING, 1, 1, 1)
    assert state.worker == process.consumer.name
    assert state.progress is None
    world.run(21)
    assert len(world.broker.records(STATES)) == 3
    world.until(world.answers)
    world.run(2)
    assert world.state(0) is None
    assert process.counter("tasks_total", "OK") == 1


def test_a_long_task_in_an_extra_slot_has_a_record(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The executor moves a task to an extra slot as soon as the task is long."""
    world.request("long", work=Work(100.0))
    process = start(world)
    running = vars(StandInExecutor)["running"].fget
    monkeypatch.setattr(StandInExecutor, "running", None)
    monkeypatch.setattr(StandInExecutor, "beside", property(lambda self: [one] if (one := running(self)) else []))
    world.run(62)
    state = known(world)
    assert state.state == RUNNING
    world.until(world.answers)
    world.run(2)
    assert world.state(0) is None
    assert process.counter("tasks_total", "OK") == 1


def test_a_task_that_reports_progress_has_a_record_at_once(world: World) -> None:
    """Progress is written at most once a second, and the last report wins."""
    reports = tuple((0.1 + at / 10, at / 100) for at in range(31))
    world.request("long", work=Work(10.0, reports=reports))
    start(world)
    world.run(0.5)
    assert known(world).progress == pytest.approx(0.0)
    world.run(6)
    assert (known(world).progress, known(world).message) == (0.3, "at 0.3")
    assert len(world.broker.records(STATES)) <= 6
    world.until(lambda: world.committed() == 1)
    world.run(1)
    assert world.state(0) is None


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_the_next_owner_resumes_from_the_last_checkpoint(world: World, guarantee: str) -> None:
    """The first process has crashed. The record of the second process replaces the record of the first."""
    world.request("long", work=Work(50.0, reports=((1.0, b"one"), (2.0, b"two"))))
    first = start(world, guarantee=guarantee)
    world.run(5)
    world.crash(first)
    second = start(world, guarantee=guarantee)
    world.until(lambda: second.starts)
    assert resumes(second) == [b"two"]
    world.run(0.5)
    assert (state := world.state(0)) is not None
    assert (state.worker, state.epoch, state.checkpoint) == (second.consumer.name, 2, b"two")
    world.until(lambda: world.committed() == 1)
    world.run(1)
    assert world.state(0) is None
    assert [answer.outcome for answer in world.answers()] == [OK]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_drain_keeps_the_checkpoint(world: World, guarantee: str) -> None:
    """This includes a checkpoint that is saved just before the process leaves."""
    world.request("long", work=Work(50.0, obeys=1.0, reports=((1.0, b"early"), (5.5, b"late"))))
    first = start(world, guarantee=guarantee)
    world.run(5)
    first.order(Command.CANCEL)
    world.until(lambda: first.exit_code is not None)
    assert (state := world.state(0)) is not None
    assert (state.state, state.checkpoint) == (WAITING, b"late")
    second = start(world, guarantee=guarantee)
    world.until(lambda: world.committed() == 1)
    assert resumes(second) == [b"late"]
    assert second.starts == [(0, 0, 1)], "a drain uses up no attempt"


def test_a_task_that_is_taken_over_resumes_from_its_checkpoint(world: World) -> None:
    """The task is detached when its partition moves, and its holder dies later."""
    world.request("long", work=Work(500.0, reports=((1.0, b"one"),)))
    first = start(world, hold=3.0)
    world.run(5)
    second = start(world, hold=3.0)
    world.move(0, second)
    world.run(60)
    assert (len(first.starts), second.starts, first.exit_code) == (1, [], None)
    world.crash(first)
    world.until(lambda: len(second.starts) == 1)
    assert resumes(second) == [b"one"]


def test_the_next_attempt_in_the_same_process_resumes_from_the_checkpoint(world: World) -> None:
    """Each failure counts as an attempt. Between attempts the state of the task is ``waiting``."""
    work = [failing(2.0, reports=((1.0, b"one"),)), failing(2.0), Work(1.0)]  # type: ignore[arg-type]
    world.request("flaky", work=work)
    process = start(world, retry_first=5.0)
    world.until(lambda: len(process.starts) == 1)
    world.run(2.3)
    assert (state := world.state(0)) is not None
    assert state.state == WAITING
    world.until(lambda: world.committed() == 1)
    assert process.starts == [(0, 0, 1), (0, 0, 2), (0, 0, 3)]
    assert resumes(process) == [None, b"one", b"one"]


def test_a_crash_after_a_new_checkpoint_uses_up_no_attempt(world: World) -> None:
    """Five processes die, each after a new checkpoint. A start without a new checkpoint counts as an attempt."""
    for at in range(5):
        world.script[f"step-{at}"] = Work()
    world.request("long", work=Work(50.0, reports=((1.0, b"0"),)))
    for at in range(5):
        world.script["long"] = Work(50.0, reports=((1.0, str(at).encode()),))
        process = start(world)
        world.until(lambda process=process: process.starts)  # type: ignore[misc]
        assert process.starts == [(0, 0, 1)]
        world.run(3)
        world.crash(process)
    world.script["long"] = Work(50.0)
    process = start(world)
    world.until(lambda: process.starts)
    world.run(3)
    world.crash(process)
    last = start(world)
    world.until(lambda: last.starts)
    assert last.starts == [(0, 0, 2)]
    assert resumes(last) == [b"4"]


def test_a_crash_after_the_same_checkpoint_again_uses_up_an_attempt(world: World) -> None:
    world.request("long", work=Work(50.0, reports=((1.0, b"same"),)))
    for attempt in (1, 1, 2):
        process = start(world)
        world.until(lambda process=process: process.starts)  # type: ignore[misc]
        assert process.starts == [(0, 0, attempt)]
        world.run(3)
        world.crash(process)


def test_a_stale_record_of_a_former_owner_is_written_over(world: World) -> None:
    """A former owner that was frozen writes after the new owner has begun. The new owner writes its record again."""
    world.request("long", work=Work(50.0, reports=((1.0, b"old"),)))
    first = start(world)
    world.run(3)
    before = known(world)
    world.crash(first)
    world.script["long"] = Work(50.0, reports=((1.0, b"new"),))
    second = start(world)
    world.until(lambda: second.starts)
    world.run(3)
    late = dataclasses.replace(before, checkpoint=b"late")
    world.write_state(state_key(ORIGIN), encode_state(late), ORIGIN)
    world.run(1)
    records = [record for record in world.broker.records(STATES) if record.key == state_key(ORIGIN)]
    state = known(world)
    assert (state.checkpoint, state.worker) == (b"new", second.consumer.name)
    assert records[-1].value == encode_state(state), "compaction would keep the stale one"
    world.crash(second)
    third = start(world)
    world.until(lambda: third.starts)
    assert resumes(third) == [b"new"]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_a_former_owner_that_wakes_up_does_not_write_over_the_new_record(
    world: World, monkeypatch: pytest.MonkeyPatch, guarantee: str
) -> None:
    """It reads the record of the new owner some seconds before it learns that it has lost the partition."""
    world.request("long", work=Work(100.0, reports=((1.0, b"old"), (20.0, b"late"))))
    first = start(world, guarantee=guarantee)
    world.run(3)
    world.clock.freeze(first._fibre)
    world.broker.group(GROUP).leave(first.consumer)
    world.script["long"] = Work(100.0, reports=((1.0, b"new"),))
    second = start(world, guarantee=guarantee)
    world.run(30)
    with monkeypatch.context() as patch:
        patch.setattr(first.consumer, "_serve", lambda: None)
        world.clock.thaw(first._fibre)
        world.run(5)
    world.run(20)
    states = [decode(record.key, record.value) for record in world.broker.records(STATES)]
    assert {one.epoch for one in states if isinstance(one, TaskState) and one.worker == first.consumer.name} == {1}
    state = known(world)
    assert (state.checkpoint, state.worker, state.epoch) == (b"new", second.consumer.name, 2)


def test_an_owner_that_keeps_its_partition_writes_over_a_record_of_a_later_start(world: World) -> None:
    """The process that wrote the other record has lost the partition."""
    world.request("long", work=Work(100.0, reports=((1.0, b"ours"),)))
    process = start(world)
    world.run(3)
    ours = known(world)
    other = dataclasses.replace(ours, worker="other", epoch=5, checkpoint=b"other")
    world.write_state(state_key(ORIGIN), encode_state(other), ORIGIN)
    world.run(8)
    assert world.state(0) == other
    world.run(4)
    state = known(world)
    assert (state.checkpoint, state.worker, state.epoch) == (b"ours", process.consumer.name, 6)


def owner_that_waits(world: World) -> tuple[Process, TaskState]:
    """Return the next owner of a task that has crashed. It is busy, so it only knows the state. Return that too."""
    first, busy = start(world), start(world)
    world.until(lambda: first.owned == [0] and busy.owned == [1])
    world.request("other", 1, work=Work(30.0))
    world.request("long", work=Work(50.0, reports=((1.0, b"1"),)))
    world.run(3)
    before = known(world)
    world.crash(first)
    world.until(lambda: busy.owned == [0, 1])
    world.run(2)
    assert (known(world).state, known(world).checkpoint) == (WAITING, b"1")
    assert (0, 0, 1) not in busy.starts
    return busy, before


def test_a_record_of_another_owner_that_waits_does_not_count(world: World) -> None:
    """It does not know yet that it has lost the partition. Both would adopt the record of the other again and again."""
    busy, before = owner_that_waits(world)
    late = dataclasses.replace(before, worker="another", checkpoint=b"0", state=WAITING)
    world.write_state(state_key(ORIGIN), encode_state(late), ORIGIN)
    world.until(lambda: len(world.answers()) == 2)
    assert resumes(busy) == [None, b"1"]


@pytest.mark.parametrize("late_state", [RUNNING, WAITING, CANCELLING])
def test_a_record_that_came_after_its_partition_had_begun_counts(world: World, late_state: str) -> None:
    """The connections of the former owner were cut, so its last records reached the topic late."""
    busy, before = owner_that_waits(world)
    late = dataclasses.replace(before, checkpoint=b"2", state=late_state, updated_ns=before.updated_ns + 1)
    world.write_state(state_key(ORIGIN), encode_state(late), ORIGIN)
    world.run(2)
    if late_state == CANCELLING:
        assert [answer.outcome for answer in world.answers()] == [CANCELLED]
        return
    assert (known(world).state, known(world).checkpoint) == (WAITING, b"2")
    world.until(lambda: len(world.answers()) == 2)
    assert resumes(busy) == [None, b"2"]


def test_a_partition_waits_for_its_states(world: World) -> None:
    """None of its tasks starts before the states are known. The process continues with its other tasks."""
    world.request("long", work=Work(50.0, reports=((1.0, b"one"),)))
    first = start(world)
    world.run(3)
    world.crash(first)
    second = start(world)
    assert second.states is not None
    second.states.away = True
    world.run(20)
    assert second.starts == []
    second.states.away = False
    world.until(lambda: second.starts)
    assert resumes(second) == [b"one"]


def test_a_partition_begins_without_its_states_when_the_reader_stays_away(world: World) -> None:
    """The partition waits thirty seconds for its states."""
    world.request("long", work=Work(5.0))
    process = start(world)
    assert process.states is not None
    process.states.away = True
    world.until(lambda: process.starts)
    assert 25 < world.clock() - world.began < 40
    world.until(lambda: world.committed() == 1)


def test_a_state_that_was_left_behind_is_removed(world: World) -> None:
    """Its process has died between the answer and the tombstone."""
    world.request("long", work=Work(5.0, reports=((1.0, b"one"),)))
    first = start(world)
    world.until(lambda: world.state(0) is not None)
    left = known(world)
    world.until(lambda: world.committed() == 1)
    world.run(1)
    world.leave(first)
    world.write_state(state_key(ORIGIN), encode_state(left), ORIGIN)
    start(world)
    world.until(lambda: world.state(0) is None, seconds=20)


def test_an_outage_of_the_state_topic_delays_only_the_records(world: World) -> None:
    """Failed deliveries are repeated, so the last state reaches the topic."""
    world.broker.fail(STATES, "_MSG_TIMED_OUT", 3)
    world.request("long", work=Work(20.0, reports=((1.0, b"one"),)))
    process = start(world)
    world.run(10)
    assert (state := world.state(0)) is not None
    assert state.checkpoint == b"one"
    assert process.counter("state_failures_total", "_MSG_TIMED_OUT") == 3
    assert world.leave(process) == [ExitCode.DRAINED]


def test_a_checkpoint_that_the_topic_refuses_does_not_end_the_task(world: World) -> None:
    """The checkpoint before it stays, and the task continues."""
    world.request("long", work=Work(20.0, reports=((1.0, b"small"), (2.0, bytes(900_000)), (6.0, 0.5))))
    world.broker.topics[STATES].max_bytes = 100_000
    process = start(world)
    world.run(10)
    assert (state := world.state(0)) is not None
    assert (state.checkpoint, state.progress) == (b"small", 0.5)
    assert world.leave(process) == [ExitCode.DRAINED]


def test_without_a_state_topic_no_record_is_written(world: World) -> None:
    world.request("long", work=Work(200.0, reports=((1.0, b"one"), (2.0, 0.25))))
    process = world.process()
    world.run(5)
    task = (process.status.read() or {})["task"]
    assert (task["progress"], task["message"]) == (0.25, "at 0.25")
    world.until(lambda: world.committed() == 1)
    assert world.broker.records(STATES) == []


def test_the_snapshot_shows_progress(world: World) -> None:
    world.request("long", work=Work(20.0, reports=((1.0, 0.25),)))
    process = start(world)
    world.run(3)
    snapshot = process.status.read() or {}
    assert (snapshot["task"]["progress"], snapshot["gauges"]["long_tasks"]) == (0.25, 1)
    assert snapshot["gauges"]["task_progress"] == {"requests/0/0": 0.25}
    world.run(30)
    assert (process.status.read() or {})["gauges"]["task_progress"] == {}
