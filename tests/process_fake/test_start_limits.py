"""A commit records that a task may have started before it starts. So the next owner knows what killed a process."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import GROUP, World
from worker.codec import DEAD_LETTERED, OK
from worker.core.model import Verdict
from worker.errors import ExitCode

if TYPE_CHECKING:
    from tests.process_fake.world import Process

KILL = Work(seconds=1e9)  # the work of a task that kills its process


def test_no_task_starts_before_its_start_limit_is_confirmed(world: World) -> None:
    """The commit metadata have the limit. The committed offset stays where it was, also at 0."""
    world.broker.commit_delay = 0.01
    for _ in range(2):
        world.request("long", work=Work(seconds=20.0))
    process = world.process()
    world.run(0.009)
    assert (process.starts, world.broker.group(GROUP).commits) == ([], [])
    world.until(lambda: process.starts)
    assert (world.committed(), world.noted().started_below) == (None, 1)
    world.run(10)
    assert world.noted().started_below == 1
    world.until(lambda: len(process.starts) == 2)
    assert world.noted().started_below == 2


def test_a_full_queue_does_not_delay_a_start(world: World) -> None:
    """A task starts when the reply to its commit arrives, although the process has nothing to fetch then."""
    world.broker.commit_delay = 0.002
    for _ in range(100):
        world.request("short", work=Work(seconds=0.001))
    world.process()
    begun = world.clock()
    world.until(lambda: len(world.answers()) == 100)
    assert world.clock() - begun < 0.15


def test_a_start_limit_that_was_refused_is_requested_again(world: World) -> None:
    """A commit that timed out may have been applied, but it is not confirmed."""
    world.broker.fail_commits("REQUEST_TIMED_OUT", 3, applied=True)
    world.request("long", work=Work(seconds=20.0))
    process = world.process()
    world.run(1.0)
    assert process.starts == []
    world.until(lambda: process.starts)
    assert world.noted().started_below == 1


def test_tasks_start_without_a_start_limit_while_commits_fail(world: World) -> None:
    """The broker may be away for an hour, and the fetched tasks are worth running. A start may then not be counted."""
    world.request("long", work=Work(seconds=2.0))
    world.request("long", work=Work(seconds=2.0))
    process = world.process()
    world.broker.commit_delay = 3_000.0
    world.until(lambda: len(process.starts) == 2, seconds=10)
    assert world.broker.group(GROUP).commits == []
    world.until(lambda: world.committed() == 2, seconds=10_000)


@pytest.mark.parametrize("delay", [0.002, 0.9])
@pytest.mark.parametrize("code", ["ILLEGAL_GENERATION", "REBALANCE_IN_PROGRESS", "UNKNOWN_MEMBER_ID"])
def test_no_task_starts_while_the_group_refuses_commits(world: World, code: str, delay: float) -> None:
    """The broker is available, and the partition may have another owner. So the start would not be counted."""
    world.broker.commit_delay = delay
    world.broker.fail_commits(code, 8)
    world.request("long", work=Work(seconds=2.0))
    process = world.process()
    world.until(lambda: process.counter("commit_failures_total", code) == 8, seconds=20)
    assert process.starts == []
    world.until(lambda: world.committed() == 1, seconds=20)


@pytest.mark.parametrize("ordering", ["partition", "unordered"])
def test_tasks_that_run_alone_follow_each_other_at_once(world: World, ordering: str) -> None:
    """Each waits only for the answer to the task before it and for its start limit."""
    for _ in range(50):
        world.request("quick", work=Work(seconds=0.001))
    world.process(max_attempts=1, ordering=ordering)
    world.until(lambda: world.committed() == 50, seconds=2.0)


def test_a_full_queue_does_not_delay_the_first_task(world: World) -> None:
    """A start limit takes a round trip. The process gets its confirmation also when there is nothing to fetch."""
    for _ in range(20):
        world.request("long", work=Work(seconds=2.0))
    process = world.process()
    started = world.clock()
    world.until(lambda: process.starts)
    assert world.clock() - started < 0.3


def test_the_next_long_task_starts_at_once(world: World) -> None:
    """Between two long tasks there is one round trip to the broker."""
    for _ in range(20):
        world.request("long", work=Work(seconds=2.0))
    process = world.process()
    world.until(lambda: len(world.answers()) == 20)
    started = [at for at, _, _ in process.service.started]
    assert max(later - earlier for earlier, later in itertools.pairwise(started)) < 2.1


def test_short_tasks_of_an_idle_process_start_at_once(world: World) -> None:
    """Their starts are recorded at the same time: waiting for the round trip would be most of their latency."""
    world.quick()
    process = world.process()
    world.until(lambda: world.committed() == 30)
    world.broker.commit_delay = 3.0
    world.run(5)
    since = world.clock()
    world.request("quick")
    world.until(lambda: len(process.starts) == 31)
    assert world.clock() - since < 0.2


def test_no_request_is_a_crash_suspect_when_all_are_answered(world: World) -> None:
    """The death of an idle process uses up no attempt."""
    world.request()
    process = world.process()
    world.until(lambda: world.committed() == 1)
    world.crash(process)
    world.request()
    successor = world.process()
    world.until(lambda: world.committed() == 2)
    assert successor.starts == [(0, 1, 1)]


def test_a_drain_leaves_no_crash_suspect(world: World) -> None:
    """It uses up no attempt, neither of a task that has ended nor of a task that was given up."""
    for _ in range(3):
        world.request("long", work=Work(seconds=20.0))
    process = world.process()
    world.until(lambda: process.starts)
    assert world.leave(process) == [ExitCode.DRAINED]
    assert (world.committed(), world.noted().started_below, world.noted().attempts) == (1, None, {})
    successor = world.process()
    world.until(lambda: world.committed() == 3)
    assert successor.starts == [(0, 1, 1), (0, 2, 1)]


def test_a_revocation_leaves_no_crash_suspect(world: World) -> None:
    """The commit metadata for the new owner of the partition have no start limit and no attempts."""
    for _ in range(3):
        world.request("long", work=Work(seconds=20.0))
    process = world.process()
    world.until(lambda: process.starts)
    rival = world.rival()
    world.move(0, rival)
    world.until(lambda: 0 in rival.owned)
    assert (world.committed(), world.noted().started_below, world.noted().attempts) == (1, None, {})


# ---------------------------------------------------------------- tasks that kill their process


def killed(world: World, offset: int, *, after: float = 1.0, **options: Any) -> int:
    """Start processes that the task at this offset kills, until it has an answer. Return how many it killed."""
    deaths = 0
    while True:
        process = world.process(**options)
        world.until(lambda: (0, offset) in world.answered() or _is_fatal(process, after))  # noqa: B023 - used at once
        if not _is_fatal(process, after):
            return deaths
        deaths += 1
        world.crash(process)


def _is_fatal(process: Process, after: float) -> bool:
    running = process.service.running
    return running is not None and process.world.work_of(running[0]) is KILL and running[1] >= after


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_request_that_kills_its_process_never_fails_another_request(world: World, place: int) -> None:
    """The answer to the request before it may not be committed by then. So that request is the first suspect."""
    for offset in range(3):
        world.request("kill" if offset == place else "long", work=KILL if offset == place else Work(seconds=2.0))
    assert killed(world, place, after=0.0) == 3
    world.until(lambda: world.committed() == 3)
    assert {a.origin.offset: a.outcome for a in world.answers()} == {
        offset: DEAD_LETTERED if offset == place else OK for offset in range(3)
    }
    assert len(world.dead_letters()) == 1


@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_request_that_kills_every_process_is_a_dead_letter(world: World, place: int) -> None:
    """It has as many starts as any task may have. The other requests are answered with their first attempts."""
    for offset in range(3):
        world.request("kill" if offset == place else "long", work=KILL if offset == place else Work(seconds=2.0))
    assert killed(world, place) == 3
    world.until(lambda: world.committed() == 3)
    answers = world.answers()
    assert [answer.outcome for answer in answers] == [DEAD_LETTERED if n == place else OK for n in range(3)]
    assert (answers[place].error.type, answers[place].attempt) == ("ProcessDied", 3)
    assert [answer.attempt for n, answer in enumerate(answers) if n != place] == [1, 1]
    (dead_letter,) = world.dead_letters()
    assert dict(dead_letter.headers)["x-attempts"] == b"3"


@pytest.mark.parametrize("before", [0, 1, 2])
@pytest.mark.parametrize("delay", [0.002, 0.05])
def test_a_request_that_kills_idle_processes_before_a_commit_gets_one_start_more(before: int, delay: float) -> None:
    """The next owner records the start first, also if it has been idle for long or answers other requests before."""
    world = World(partitions=6)
    processes = [world.process() for _ in range(6)]
    for number in range(6):
        world.quick(number)
    world.run(5)
    world.broker.commit_delay = delay
    for _ in range(before):
        world.request("quick")
        world.run(0.005)
    fatal = world.request("kill", work=KILL)
    deaths = 0
    while (0, fatal) not in world.answered():
        world.run(0.0005)
        for process in [one for one in processes if _is_fatal(one, 0.0)]:
            deaths += 1
            processes.remove(process)
            world.crash(process)
    assert deaths == 4
    assert [one.origin.offset for one in world.answers() if one.outcome != OK] == [fatal]


def test_failed_attempts_and_crashes_count_together(world: World) -> None:
    """The next process knows of the failed attempt."""
    world.request("bad", work=[failing(seconds=2.0, retry_after=1.0), KILL, KILL])
    assert killed(world, 0) == 2
    assert (world.answers()[0].error.type, world.answers()[0].attempt) == ("ProcessDied", 3)


def test_failed_attempts_still_count_after_a_drain(world: World) -> None:
    """A request has three attempts, however often the worker is deployed between them."""
    world.request("bad", work=failing(seconds=2.0, retry_after=50.0))
    starts = []
    for _ in range(3):
        process = world.process()
        world.until(lambda: process.counter("attempts_total", "failed"))  # noqa: B023 - used at once
        world.run(1)
        world.leave(process)
        starts += process.starts
    assert starts == [(0, 0, 1), (0, 0, 2), (0, 0, 3)]
    assert [answer.error.type for answer in world.answers()] == ["ScriptedError"]


def test_a_short_task_that_kills_its_process_is_found_too(world: World) -> None:
    """Any task of the chunk may have killed the process, so all of them are suspects and start one by one."""
    world.quick()
    for offset in range(30, 50):
        world.request("kill" if offset == 40 else "quick", work=KILL if offset == 40 else Work(seconds=0.001))
    deaths = killed(world, 40)
    world.until(lambda: world.committed() == 50)
    assert deaths in {3, 4}, "one start may go uncounted"
    assert [answer.origin.offset for answer in world.answers() if answer.outcome != OK] == [40]


@pytest.mark.parametrize("text", ["somebody else's", "kw1 o5 w1", "kw1 oz"])
def test_commit_metadata_that_the_worker_has_not_written_are_ignored(world: World, text: str) -> None:
    """A tool may have written them, or set the offset and kept the worker's metadata."""
    world.request()
    world.request()
    process = world.process()
    world.until(lambda: world.committed() == 2)
    world.leave(process)
    group = world.broker.group(GROUP)
    for partition, position in group.committed.items():
        group.committed[partition] = position._replace(offset=1, metadata=text)
    successor = world.process()
    world.until(lambda: len(world.answers()) == 3)
    assert successor.starts == [(0, 1, 1)]


def test_an_answered_request_is_never_a_crash_suspect(world: World) -> None:
    """This holds for every outcome. Here the request was rejected."""
    world.request("bad", work=Work(2.0, Verdict.REJECTED))
    world.request("kill", work=KILL)
    assert killed(world, 1) == 3
    assert [answer.attempt for answer in world.answers()] == [1, 3]


@pytest.mark.parametrize("batch_size", [1, 10])
@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once"])
def test_a_refused_start_limit_makes_no_busy_loop(world: World, guarantee: str, batch_size: int) -> None:
    """The commit is repeated every half second."""
    world.broker.fail_commits("REBALANCE_IN_PROGRESS", 100_000)
    for _ in range(5):
        world.request()
    process = world.process(guarantee=guarantee, batch_size=batch_size)
    world.run(5)
    before = process.counter("polls_total")
    world.run(20)
    assert (process.counter("polls_total") - before) / 20 < 100


@pytest.mark.parametrize("one_partition", [True, False])
def test_a_crash_of_a_batch_uses_up_no_attempt_of_a_request_that_has_not_started(
    world: World, *, one_partition: bool
) -> None:
    """With WORKER_MAX_ATTEMPTS=1 starts are counted exactly."""
    options: dict[str, Any] = {"batch_size": 2, "batch_per_partition": one_partition, "max_attempts": 1}
    world.request("kill", 0, work=Work(1e9))
    for _ in range(2):
        world.request("next", 1)
    process = world.process(**options)
    world.until(lambda: process.starts)
    world.run(2)
    started = {start[:2] for start in process.starts}
    world.crash(process)
    world.script["kill"] = Work()
    world.process(**options)
    world.until(lambda: len(world.answers()) == 3, seconds=100)
    for answer in world.answers():
        place = answer.origin.partition, answer.origin.offset
        assert (answer.outcome == OK) == (place not in started), (place, answer.error.type)
