"""Exactly-once while answers come faster than transactions end."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process_fake.detaching import process as detaching_process
from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.test_detached import detached
from tests.process_fake.world import GROUP, World
from worker.core.model import FollowUp, Verdict
from worker.kafka.ports import Ended, KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process_fake.world import Process
    from worker.kafka.ports import Transaction

REFUSED = "UNKNOWN_TOPIC_OR_PART"
QUICK = Work(0.0002)
PARTITIONS = 4


def with_a_refused_record(world: World, before: int, behind: int) -> Process:
    """Start a process with many quick tasks, one of which sends a record that no topic takes."""
    for _ in range(before):
        world.request("quick", work=QUICK)
    world.request("bad", work=Work(0.0002, sent=(FollowUp("no-such-topic", None, "x"),)))
    for _ in range(behind):
        world.request("quick", work=QUICK)
    process = world.process(guarantee="exactly-once")
    process.transaction_thread.seconds = 0.02
    return process


def test_a_transaction_commits_no_offset_without_its_answer() -> None:
    """After an aborted transaction its answers are sent in parts. The process may die between two parts."""
    world = World(1)
    process = with_a_refused_record(world, 300, 300)
    world.until(lambda: process.counter("transactions_aborted_total", REFUSED) >= 1)
    answered = len(world.answers())
    world.until(lambda: len(world.answers()) > answered)
    world.crash(process)
    assert set(range(world.committed() or 0)) <= {offset for _, offset in world.answered()}
    world.process(guarantee="exactly-once")
    world.until(lambda: len(world.answers()) == 601, 300)
    world.run(5)
    assert sorted(world.answered()) == [(0, offset) for offset in range(601)]


def test_a_refused_record_is_found_by_bisection() -> None:
    world = World(1)
    process = with_a_refused_record(world, 300, 300)
    world.until(lambda: len(world.answers()) == 601, 300)
    assert process.counter("transactions_aborted_total", REFUSED) <= 20
    assert sorted(world.answered()) == [(0, offset) for offset in range(601)]
    assert world.committed() == 601


def test_a_lease_begins_while_other_partitions_keep_the_process_busy() -> None:
    world = World(2)
    process = world.process(guarantee="exactly-once")
    rival = world.rival()
    process.transaction_thread.seconds = 0.007
    world.run(10)
    (mine,) = process.owned
    for _ in range(4_000):
        world.request("short", mine, work=Work(0.003))
    world.request("other", 1 - mine, work=Work(0.003))
    world.run(1)
    world.broker.group(GROUP).leave(rival.consumer)
    rival.consumer.poll = lambda *_: []  # type: ignore[method-assign]  # it never joins again
    world.until(lambda: (1 - mine, 0) in world.answered(), 3.0)
    assert len(world.answers()) < 4_000


def test_a_task_is_taken_over_while_other_tasks_keep_the_process_busy(world: World) -> None:
    holder, owner = detached(world)
    owner.transaction_thread.seconds = 0.007
    for number in range(9_000):
        world.request("short", 1 + number % 3, work=Work(0.003))
    world.run(2)
    calls = count_calls(owner)
    world.crash(holder)
    world.until(lambda: (0, 0, 2) in owner.starts, 15.0)
    assert len(world.answers()) < 9_000
    assert len(calls) < 30


def count_calls(process: Process) -> list[None]:
    """Return a list that grows with each call about a group."""
    calls: list[None] = []
    group_calls = process.assembly._calls
    send: Callable[..., None] = group_calls.send

    def counting(*arguments: object) -> None:
        calls.append(None)
        send(*arguments)

    group_calls.send = counting  # type: ignore[method-assign,assignment]
    return calls


def test_an_answer_that_cannot_be_committed_delays_no_other_answer(world: World) -> None:
    """Here the process has no permission to commit the mark of a detached task."""
    first = detaching_process(world, guarantee="exactly-once")
    world.run(20)
    refuse_handshakes(world, first)
    world.request("long", 2, work=Work(40))
    world.run(5)
    detaching_process(world, guarantee="exactly-once")
    world.run(80)
    answered = len(world.answers())
    for partition in first.owned:
        for _ in range(5):
            world.request("short", partition, work=Work(0.02))
    world.until(lambda: len(world.answers()) == answered + 5 * len(first.owned), 10.0)
    assert first.owned


def refuse_handshakes(world: World, process: Process) -> None:
    thread = process.transaction_thread
    send = thread.send

    def refusing(transaction: Transaction) -> None:
        if transaction.handshake is None:
            send(transaction)
            return
        failure = KafkaFailure("GROUP_AUTHORIZATION_FAILED", "scripted")
        thread.busy, thread._ending = True, None
        world.clock.after(0.005, lambda: setattr(thread, "_ending", Ended(committed=False, failure=failure)))

    thread.send = refusing  # type: ignore[method-assign]


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
def test_an_answer_that_no_longer_fits_loses_its_traceback(guarantee: str) -> None:
    """The limit of the topic has become smaller since the process started."""
    world = World(1)
    world.broker.topics["acks"].max_bytes = 8_000
    world.request("bad", work=Work(0.01, Verdict.FAILED, traceback="x" * 12_000))
    process = world.process(guarantee=guarantee, max_attempts=1)
    world.run(5)
    for _ in range(5):
        world.request("good", work=Work(0.01))
    world.until(lambda: len(world.answers()) == 6, 10.0)
    assert process.counter("transactions_aborted_total", "MSG_SIZE_TOO_LARGE") <= 3
    bad = next(answer for answer in world.answers() if not answer.isprocessed)
    assert (bad.error.message, bad.error.traceback) == ("as scripted", "")


def test_an_answer_that_cannot_be_made_smaller_is_repeated_with_pauses() -> None:
    world = World(1)
    world.broker.topics["acks"].max_bytes = 10
    world.request("bad", work=failing(0.01))
    process = world.process(guarantee="exactly-once", max_attempts=1)
    world.run(60)
    assert 10 < process.counter("transactions_aborted_total", "MSG_SIZE_TOO_LARGE") < 100
    world.broker.topics["acks"].max_bytes = 8_000
    world.until(lambda: world.answered() == [(0, 0)], 5.0)
