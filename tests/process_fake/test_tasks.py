"""Requests and their answers: the order, retries, and requests or results that are invalid."""

from __future__ import annotations

import pytest

from tests.process_fake.stand_ins import Work, failing
from tests.process_fake.world import ACKS, DEAD, World
from worker.codec import DEAD_LETTERED, OK
from worker.core.model import Verdict
from worker.errors import ExitCode


def test_every_request_is_answered_once_and_committed(world: World) -> None:
    for number in (0, 1) * 20:
        world.request(number=number)
    process = world.process()
    world.until(lambda: world.committed(0) == 20 and world.committed(1) == 20)
    assert world.answered() == [(number, offset) for number in (0, 1) for offset in range(20)]
    assert {(answer.outcome, answer.result, answer.attempt) for answer in world.answers()} == {(OK, b"done", 1)}
    assert process.counter("tasks_total", "OK") == 40
    assert process.counter("records_total") == 40
    assert world.leave(process) == [ExitCode.DRAINED]


def test_gaps_in_the_offsets_do_not_matter(world: World) -> None:
    """Compaction and transaction markers leave gaps. A commit also passes a gap at the end, so that no lag is left."""
    for _ in range(3):
        world.request()
        world.broker.skip("requests", 0, 2)
    world.process()
    world.until(lambda: world.committed() == 9)
    assert world.answered() == [(0, 0), (0, 3), (0, 6)]


def test_a_commit_passes_markers_that_no_request_follows(world: World) -> None:
    """This includes markers that come when everything is answered, and markers in a partition without requests."""
    world.broker.skip("requests", 1, 4)
    world.request()
    world.process()
    world.until(lambda: (world.committed(0), world.committed(1)) == (1, 4))
    world.broker.skip("requests", 0, 2)
    world.until(lambda: world.committed(0) == 3)


def test_markers_do_not_let_a_commit_pass_an_unanswered_request(world: World) -> None:
    """The process reaches the end of the partition long before the task ends."""
    world.request("long", work=Work(seconds=100.0))
    world.broker.skip("requests", 0, 5)
    world.process()
    world.run(50)
    assert world.committed() is None
    world.until(lambda: world.committed() == 6)


def test_tasks_of_a_partition_start_in_order(world: World) -> None:
    """This holds for any durations. Partitions take turns."""
    for offset in range(8):
        for number in (0, 1):
            world.request(f"{offset % 3}", number, work=Work(seconds=(offset % 3) * 0.7))
    process = world.process()
    world.until(lambda: len(world.answers()) == 16)
    for number in (0, 1):
        assert [offset for partition, offset, _ in process.starts if partition == number] == list(range(8))
    assert {partition for partition, _, _ in process.starts[:4]} == {0, 1}


def test_a_failed_attempt_is_repeated_and_nothing_overtakes_it(world: World) -> None:
    """The answer has the number of the attempt."""
    world.request("flaky", work=[failing(), failing(), Work()])
    world.request("behind")
    process = world.process()
    world.until(lambda: len(world.answers()) == 2)
    assert process.starts == [(0, 0, 1), (0, 0, 2), (0, 0, 3), (0, 1, 1)]
    assert [answer.attempt for answer in world.answers()] == [3, 1]
    first, second, third = (at for at, task, _ in process.service.started if task.record.offset == 0)
    assert 5 <= second - first <= 11  # ten seconds, up to half of them jitter
    assert 10 <= third - second <= 21


def test_a_retry_starts_after_the_seconds_that_the_handler_requested(world: World) -> None:
    world.request("later", work=[failing(retry_after=77.0), Work()])
    process = world.process()
    world.until(world.answers)
    (first, _, _), (second, _, _) = process.service.started
    assert 77 <= second - first < 78


def test_a_partition_that_waits_for_an_attempt_does_not_delay_another_partition(world: World) -> None:
    """The other partition runs at full speed, also if the waiting one has many tasks and they are long."""
    world.request("broken", 0, work=[failing(seconds=1.0, retry_after=600.0), Work()])
    for _ in range(50):
        world.request("long", 0, work=Work(seconds=2.0))
        world.request("long", 1)
    process = world.process()
    world.until(lambda: process.starts)
    started = world.clock()
    world.until(lambda: len(world.answers()) == 50)
    assert world.clock() - started < 1 + 50 * 2.0 * 1.1
    assert {number for number, _ in world.answered()} == {1}
    world.until(lambda: len(world.answers()) == 101)
    assert [offset for partition, offset, _ in process.starts if partition == 0] == [0, 0, *range(1, 51)]


def test_short_tasks_stay_fast_beside_a_deep_partition_that_waits(world: World) -> None:
    """Tasks that are queued behind a back-off do not use up the buffer of other partitions."""
    for number in (0, 1):
        for _ in range(200):
            world.request("quick", number, work=Work(seconds=0.001))
    world.request("broken", 0, work=failing(retry_after=600.0))
    for _ in range(6_000):
        world.request("quick", 0)
    process = world.process()
    world.until(lambda: process.counter("attempts_total", "failed"))
    world.run(5)
    started, turns = world.clock(), process.counter("polls_total")
    for _ in range(1_000):
        world.request("quick", 1)
    world.until(lambda: world.committed(1) == 1_200)
    assert world.clock() - started < 2
    assert process.counter("polls_total") - turns < 300, "they came one by one"


def test_a_request_becomes_a_dead_letter_after_its_last_attempt(world: World) -> None:
    """First comes the dead letter, then the answer, then the commit. The next request starts."""
    world.request("broken", work=failing())
    world.request("behind")
    process = world.process(max_attempts=2)
    world.until(lambda: world.committed() == 2)
    assert process.starts == [(0, 0, 1), (0, 0, 2), (0, 1, 1)]
    (dead_letter,) = world.dead_letters()
    assert dict(dead_letter.headers)["x-attempts"] == b"2"
    bad, good = world.answers()
    assert (bad.outcome, bad.isprocessed, bad.error.type, bad.attempt) == (DEAD_LETTERED, False, "ScriptedError", 2)
    assert good.outcome == OK
    topics = [topic for topic, _ in process.producer.produced]
    assert topics == [DEAD, ACKS, ACKS]


def test_a_rejected_request_is_not_repeated(world: World) -> None:
    world.request("bad", work=Work(verdict=Verdict.REJECTED))
    process = world.process()
    world.until(lambda: world.committed() == 1)
    assert process.starts == [(0, 0, 1)]
    assert len(world.dead_letters()) == 1


@pytest.mark.parametrize("value", [None, b"", b"\xff\xff"])
def test_a_malformed_request_is_a_dead_letter_with_an_answer(world: World, value: bytes | None) -> None:
    """It never starts, and the request behind it is answered."""
    world.raw(value, key=b"k")
    world.request()
    process = world.process()
    world.until(lambda: world.committed() == 2)
    assert process.starts == [(0, 1, 1)]
    (dead_letter,) = world.dead_letters()
    assert (dead_letter.key, dead_letter.value) == (b"k", value)
    assert dict(dead_letter.headers)["x-error-type"] == b"MalformedRequest"
    assert [answer.outcome for answer in world.answers()] == [DEAD_LETTERED, OK]


def test_a_result_that_no_record_can_hold_makes_a_dead_letter(world: World) -> None:
    """The size is checked before the answer is sent. The request is kept, but not the result."""
    world.request("huge", work=Work(result=b"x" * 2_000))
    world.process(max_answer_bytes=1_000)
    world.until(lambda: world.committed() == 1)
    (answer,) = world.answers()
    assert (answer.outcome, answer.error.type, answer.result) == (DEAD_LETTERED, "OversizedResult", b"")
    assert len(world.dead_letters()) == 1


def test_a_result_that_the_topic_refuses_makes_a_dead_letter_too(world: World) -> None:
    """The limit of the topic may have changed since the process started."""
    world.broker.topics[ACKS].max_bytes = 1_000
    world.request("huge", work=Work(result=b"x" * 2_000))
    process = world.process()
    world.until(lambda: world.committed() == 1)
    (answer,) = world.answers()
    assert (answer.outcome, answer.error.type) == (DEAD_LETTERED, "OversizedResult")
    assert process.counter("tasks_total", "DEAD_LETTERED") == 1


@pytest.mark.parametrize("limit", [1_048_588, 1_000])
def test_a_dead_letter_that_does_not_fit_loses_its_value(world: World, limit: int) -> None:
    """This holds whether the process knows the limit or the topic refuses the record. Everything else of it stays."""
    world.broker.topics[DEAD].max_bytes = 1_000
    world.raw(b"\xff" * 2_000, key=b"k")
    world.process(max_dead_letter_bytes=limit)
    world.until(lambda: world.committed() == 1)
    (dead_letter,) = world.dead_letters()
    assert (dead_letter.key, dead_letter.value) == (b"k", None)
    assert dict(dead_letter.headers)["x-value-dropped"]


@pytest.mark.parametrize("topic", [ACKS, DEAD])
@pytest.mark.parametrize("key", [None, b"k" * 600])
def test_a_failure_that_is_too_large_for_a_topic_blocks_no_partition(
    world: World, topic: str, key: bytes | None
) -> None:
    """Key, headers and traceback may each be larger than the topic allows. The parts that do not fit are left out."""
    world.broker.topics[topic].max_bytes = 500
    world.raw(b"\xff" * 500, key=key, headers=(("h", b"x" * 500),))
    world.request("broken", work=Work(verdict=Verdict.REJECTED, traceback="x" * 5_000))
    process = world.process()
    world.until(lambda: world.committed() == 2, seconds=60)
    assert [answer.outcome for answer in world.answers()] == [DEAD_LETTERED] * 2
    assert [answer.error.type for answer in world.answers()] == ["MalformedRequest", "ScriptedError"]
    assert len(world.dead_letters()) == 2
    assert process.error is None


def test_a_dead_letter_that_cannot_be_made_smaller_is_repeated_with_pauses(world: World) -> None:
    """Such a topic makes no sense, but a loop at full speed would be worse than a blocked partition."""
    world.broker.topics[DEAD].max_bytes = 100
    world.raw(b"\xff")
    process = world.process()
    world.run(20)
    assert 15 <= process.counter("delivery_failures_total", "MSG_SIZE_TOO_LARGE") <= 21


def test_answers_have_the_key_of_their_request(world: World) -> None:
    world.raw(b"\x12\x01x", key=b"the-key")
    world.process()
    world.until(world.answers)
    (record,) = world.broker.records(ACKS)
    assert record.key == b"the-key"
