"""Deliveries and commits that fail, a broker that is away, and other faults that a process must survive."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import ACKS, DEAD, STATES, World
from worker.core.commits import KEEP_ALIVE
from worker.core.flow import BUFFER_BYTES, BUFFER_RECORDS
from worker.core.lifecycle import State
from worker.errors import ClientFatalError, ExitCode, WorkerError
from worker.executors.port import ExecutorDiedError
from worker.process import responder as responder_module
from worker.process.status_block import Command

# ---------------------------------------------------------------- deliveries


def test_a_failed_delivery_is_repeated_until_it_is_confirmed(world: World) -> None:
    """Before that there is no answer and no commit."""
    world.broker.fail(ACKS, "NOT_ENOUGH_REPLICAS", 5)
    world.request()
    process = world.process()
    world.run(4.5)
    assert world.committed() is None
    world.until(lambda: world.committed() == 1)
    assert world.answered() == [(0, 0)]
    assert process.starts == [(0, 0, 1)]
    assert process.counter("delivery_failures_total", "NOT_ENOUGH_REPLICAS") == 5


def test_a_failed_dead_letter_is_repeated_too(world: World) -> None:
    world.broker.fail(DEAD, "NOT_LEADER_FOR_PARTITION", 2)
    world.raw(b"\xff")
    world.process()
    world.until(lambda: world.committed() == 1)
    assert (len(world.dead_letters()), len(world.answers())) == (1, 1)


def test_a_failed_delivery_may_lead_to_two_answers(world: World) -> None:
    """The failed answer may have arrived. Readers recognize two answers to one request by their origin."""
    world.broker.fail(ACKS, "_MSG_TIMED_OUT", applied=True)
    world.request()
    world.process()
    world.until(lambda: world.committed() == 1)
    assert world.answered() == [(0, 0), (0, 0)]


def test_a_commit_does_not_pass_an_unconfirmed_answer(world: World) -> None:
    """The committed offset stays at the first unconfirmed answer, also if later answers are confirmed."""
    world.broker.fail(ACKS, "NOT_ENOUGH_REPLICAS", 1)
    for _ in range(3):
        world.request("quick", work=Work(seconds=0.2))
    world.process()
    world.until(lambda: len(world.answers()) == 2)
    assert world.answered() == [(0, 1), (0, 2)]
    assert world.committed() is None
    world.until(lambda: world.committed() == 3)
    assert world.answered() == [(0, 0), (0, 1), (0, 2)]


def test_a_process_that_waits_to_repeat_a_delivery_uses_little_cpu_time(world: World) -> None:
    """The loop turns some ten times a second, and not as fast as it can."""
    world.broker.fail(ACKS, "TOPIC_AUTHORIZATION_FAILED", 10_000)
    world.request()
    process = world.process()
    world.until(lambda: process.counter("delivery_failures_total", "TOPIC_AUTHORIZATION_FAILED"))
    before = process.counter("polls_total")
    world.run(20)
    assert process.counter("polls_total") - before < 20 * 60


def test_hundreds_of_failed_deliveries_are_a_few_log_lines(world: World, lines: list[Any]) -> None:
    world.broker.fail(ACKS, "NOT_ENOUGH_REPLICAS", 300)
    for _ in range(300):
        world.request("quick", work=Work(seconds=0.0))
    world.process()
    world.until(lambda: world.committed() == 300)
    reported = [line for line in lines if line["event"] == "delivery.failed"]
    assert sum(line["count"] for line in reported) == 300
    assert len(reported) < 60


def test_unconfirmed_answers_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the broker is away tasks continue, but only up to this limit, so that the memory does not fill up."""
    monkeypatch.setattr(responder_module, "MAX_UNCONFIRMED", 20)
    world.broker.topics[ACKS].delay = 1_000.0
    for _ in range(300):
        world.request("quick", work=Work(seconds=0.05))
    process = world.process()
    world.run(200)
    assert 20 <= len(process.starts) < 25
    assert 20 <= process.loop._responder.outstanding <= len(process.starts)
    world.broker.topics[ACKS].delay = 0.001
    world.until(lambda: len(world.answers()) == 300)


def test_unconfirmed_bytes_are_bounded(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(responder_module, "MAX_UNCONFIRMED_BYTES", 100_000)
    world.broker.topics[ACKS].delay = 10**6
    for _ in range(100):
        world.request("fat", work=Work(seconds=0.05, result=b"x" * 10_000))
    process = world.process()
    world.run(100)
    assert 10 <= len(process.starts) < 14


def test_results_wait_while_too_many_answers_are_unconfirmed(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """The results stay with the executor, which then waits, too."""
    world.request("task", work=Work(seconds=5.0))
    process = world.process()
    world.until(lambda: process.starts)
    with monkeypatch.context() as patch:
        patch.setattr(responder_module, "MAX_UNCONFIRMED", 0)
        world.run(10)
        assert world.answers() == []
    world.until(world.answers)


def test_checkpoints_do_not_wait_while_too_many_answers_are_unconfirmed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that takes no answers may still take records of another topic."""
    process = world.process(state_topic=STATES)
    world.request("long", work=Work(seconds=100.0, reports=((50.0, b"saved"),)))
    world.until(lambda: process.starts)
    monkeypatch.setattr(responder_module, "MAX_UNCONFIRMED", 0)
    world.run(60)
    state = world.state(0)
    assert state is not None
    assert state.checkpoint == b"saved"


def test_a_dead_executor_ends_the_process_while_too_many_answers_are_unconfirmed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(responder_module, "MAX_UNCONFIRMED", 0)
    process = world.process()
    world.run(1)
    process.service.fail(ExecutorDiedError("scripted"))
    world.until(lambda: process.error, seconds=10)
    assert isinstance(process.error, ExecutorDiedError)


def test_the_count_of_unconfirmed_answers_returns_to_zero(world: World) -> None:
    """This includes dead letters, results that did not fit, and repeats. A leak would stop the process some day."""
    world.broker.fail(ACKS, "NOT_ENOUGH_REPLICAS", 2)
    world.broker.topics[ACKS].max_bytes = 1_000
    world.raw(b"\xff")
    world.request("huge", work=Work(result=b"x" * 5_000))
    world.request()
    process = world.process()
    world.until(lambda: world.committed() == 3)
    answers = process.loop._responder
    assert (answers.outstanding, answers.outstanding_bytes, answers.answered) == (0, 0, 3)


# ---------------------------------------------------------------- commits


@pytest.mark.parametrize("applied", [False, True])
def test_a_failed_commit_is_sent_again(world: World, applied: bool) -> None:
    """This holds also if nothing new was settled. The failed commit may have been applied, which does no harm."""
    world.broker.fail_commits("REQUEST_TIMED_OUT", 3, applied=applied)
    world.request()
    process = world.process()
    world.until(lambda: process.counter("commits_total"))
    assert world.committed() == 1
    assert process.counter("commit_failures_total", "REQUEST_TIMED_OUT") == 3


def test_a_failed_commit_is_repeated_with_pauses(world: World) -> None:
    world.broker.fail_commits("COORDINATOR_LOAD_IN_PROGRESS", 10_000)
    world.request()
    process = world.process()
    world.run(20)
    assert 20 < process.counter("commit_failures_total", "COORDINATOR_LOAD_IN_PROGRESS") < 45


def test_many_answers_share_a_commit(world: World) -> None:
    """One commit is under way at a time. The next one covers all requests that were settled meanwhile."""
    world.broker.commit_delay = 1.0
    for _ in range(500):
        world.request("quick", work=Work(seconds=0.01))
    process = world.process()
    world.until(lambda: world.committed() == 500)
    assert process.counter("commits_total") < 50


def test_a_rare_answer_is_committed_at_once(world: World) -> None:
    process = world.process()
    world.run(10)
    world.request()
    world.until(lambda: process.service.started)
    started = world.clock()
    world.until(lambda: world.committed() == 1)
    assert world.clock() - started < 0.2


def test_offsets_are_committed_again_before_they_expire(world: World) -> None:
    """Otherwise they would expire in the group while no new request comes."""
    world.request()
    process = world.process()
    world.until(lambda: world.committed() == 1)
    world.run(1)
    commits = world.broker.group("group").commits
    reported = len(commits)
    process.loop._committer._policy._kept_at -= KEEP_ALIVE - 10
    world.run(15)
    assert [offset for _, _, offset in commits[reported:]] == [1]
    world.run(60)
    assert len(commits) == reported + 1


# ---------------------------------------------------------------- while the broker is away


def test_an_outage_of_a_minute_loses_and_repeats_no_task(world: World) -> None:
    """Tasks continue, their answers wait, and no task runs twice."""
    for _ in range(30):
        world.request("task", work=Work(seconds=5.0))
    process = world.process()
    world.until(lambda: len(world.answers()) == 5)
    world.broker.leave(60)
    world.until(lambda: world.committed() == 30)
    assert [offset for _, offset, _ in process.starts] == list(range(30))
    assert len(world.answers()) == 30


# ---------------------------------------------------------------- flow


def test_a_process_polls_during_a_long_task_and_pauses_its_partitions(world: World) -> None:
    """So the member stays in the group, and fetched records do not accumulate."""
    for _ in range(50):
        world.request("long", work=Work(seconds=400.0))
    process = world.process(max_poll_interval=5.0)
    world.until(lambda: process.starts)
    world.run(380)
    assert process.loop.assignment.queued <= 4  # a poll for the reply to a commit may bring one more record
    assert {partition.number for partition in process.consumer.paused} == {0, 1}
    assert process.counter("rebalances_total", "lost") == 0


def test_short_tasks_are_never_paused(world: World) -> None:
    for _ in range(2_000):
        world.request("quick", work=Work(seconds=0.01))
    process = world.process()
    world.until(lambda: world.committed() == 2_000)
    assert process.counter("pauses_total") == 0


def test_the_executor_is_never_idle_between_tasks_of_seconds(world: World) -> None:
    """The next task is queued before the client resumes the paused partition."""
    world.broker.resume_delay = 1.0
    for _ in range(20):
        world.request("task", work=Work(seconds=3.0))
    process = world.process()
    world.until(lambda: len(world.answers()) == 20)
    started = [at for at, _, _ in process.service.started]
    assert all(later - earlier < 3.1 for earlier, later in itertools.pairwise(started))


def test_queued_requests_are_bounded_in_bytes(world: World) -> None:
    """A thousand requests of the largest size do not fit into the memory of a small container."""
    world.script = {"x" * 1_000_000: Work(seconds=0.01)}
    for _ in range(40):
        world.request("x" * 1_000_000)
    process = world.process(started=False)
    world.run(60)
    assert process.loop.assignment.queued_bytes < BUFFER_BYTES + 2_000_000
    process.order(Command.START_TASKS)
    world.until(lambda: world.committed() == 40)


def test_a_backlog_stays_with_the_broker(world: World) -> None:
    for _ in range(3 * BUFFER_RECORDS):
        world.raw(b"\x12\x01x")
    process = world.process()
    most = 0

    def look() -> None:
        nonlocal most
        most = max(most, process.loop.assignment.queued)
        world.clock.after(0.01, look)

    look()
    while len(world.broker.records(ACKS)) < BUFFER_RECORDS:
        world.run(5)
    assert most <= BUFFER_RECORDS


# ---------------------------------------------------------------- start and end


def test_nothing_starts_before_the_startup_barrier_opens(world: World) -> None:
    """The process may fetch records before that, and it has joined the group."""
    world.request()
    process = world.process(started=False)
    world.run(60)
    assert (process.starts, process.owned) == ([], [0, 1])
    assert process.loop.lifecycle.state is State.JOINING
    process.order(Command.START_TASKS)
    started = world.clock()
    world.until(lambda: process.starts)
    assert world.clock() - started < 0.5


def test_a_dead_executor_ends_the_process(world: World) -> None:
    """Otherwise the process would look alive and do nothing."""
    process = world.process()
    world.run(1)
    process.service.fail(ExecutorDiedError("scripted"))
    world.until(lambda: process.error)
    assert isinstance(process.error, WorkerError)
    assert process.error.exit_code is ExitCode.THREAD_DIED


def test_a_fatal_error_of_the_client_ends_the_process(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    process = world.process()
    world.run(1)

    def poll(_limit: int, _timeout: float) -> None:
        raise ClientFatalError("fenced")

    monkeypatch.setattr(process.consumer, "poll", poll)
    world.until(lambda: process.error)
    assert isinstance(process.error, ClientFatalError)
