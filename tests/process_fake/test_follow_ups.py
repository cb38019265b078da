"""Follow-up requests are produced with the answer: all of them or none, and never without the answer."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import pytest

from tests.process_fake.stand_ins import Work
from tests.process_fake.world import ACKS, DEAD, REQUESTS, World
from worker.codec import DEAD_LETTERED, OK, decode_request
from worker.core.model import FollowUp, Verdict
from worker.kafka.ports import KafkaFailure
from worker.testing import Cluster
from worker.testing.transactor import Twist

if TYPE_CHECKING:
    from worker.codec import Request
    from worker.handlers.batch import Batch, BatchContext
    from worker.handlers.context import Context
    from worker.kafka.ports import Transaction

NEXT = "next"
GUARANTEES = pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once", "exactly-once"])


@pytest.fixture
def world() -> World:
    world = World()
    world.broker.create(NEXT, 1)
    return world


def sending(*sent: FollowUp, seconds: float = 0.01) -> Work:
    return Work(seconds, sent=sent)


def payloads(world: World, topic: str) -> list[str]:
    return [decode_request(record.value).payload for record in world.broker.records(topic)]


def answers(world: World, count: int) -> list[tuple[int, str]]:
    """Return the outcome and the error type of each answer, in the order of their requests."""
    world.until(lambda: len(world.broker.records(ACKS)) >= count)
    return [(answer.outcome, answer.error.type) for answer in world.answers()]


@GUARANTEES
def test_a_follow_up_request_has_sequence_parent_and_trace(world: World, guarantee: str) -> None:
    world.request("first", work=sending(FollowUp(NEXT, b"k", "second")), headers=(("trace", b"t"), ("other", b"o")))
    process = world.process(guarantee=guarantee, echo_headers=("trace",))
    assert answers(world, 1) == [(OK, "")]
    world.until(lambda: process.counter("follow_ups_total") == 1)
    (record,) = world.broker.records(NEXT)
    request = decode_request(record.value)
    assert (request.sequence, request.payload, record.key) == (1, "second", b"k")
    assert record.headers == (("trace", b"t"), ("x-parent", b"requests/0/0"))


@GUARANTEES
def test_the_first_request_topic_is_the_default(world: World, guarantee: str) -> None:
    world.request("first", work=sending(FollowUp(None, None, "second"), FollowUp(None, None, "third")))
    world.process(guarantee=guarantee)
    assert answers(world, 3) == [(OK, "")] * 3
    assert sorted(payloads(world, REQUESTS)) == ["first", "second", "third"]


@GUARANTEES
@pytest.mark.parametrize("topic", ["no-such-topic", ACKS, DEAD])
def test_a_follow_up_to_a_wrong_topic_makes_a_dead_letter_and_delays_no_request(
    world: World, guarantee: str, topic: str
) -> None:
    world.request("bad", work=sending(FollowUp(topic, None, "x")))
    world.request("good", work=sending(FollowUp(NEXT, None, "y")))
    process = world.process(guarantee=guarantee)
    assert answers(world, 2) == [(DEAD_LETTERED, "FollowUpRefused"), (OK, "")]
    world.until(lambda: world.committed() == 2 and not process.loop._responder.outstanding)
    assert payloads(world, NEXT) == ["y"]
    assert process.loop._responder.outstanding_bytes == 0


@GUARANTEES
@pytest.mark.parametrize("missing", [ACKS, DEAD])
def test_a_missing_topic_of_the_worker_refuses_no_follow_up_request(world: World, guarantee: str, missing: str) -> None:
    """The answer or the dead letter waits until its topic has been recreated."""
    topic = world.broker.topics.pop(missing)
    verdict = Verdict.OK if missing == ACKS else Verdict.REJECTED
    world.request("first", work=Work(0.01, verdict, sent=(FollowUp(NEXT, None, "second"),)))
    process = world.process(guarantee=guarantee)
    world.until(lambda: process.starts)
    world.run(5)
    world.broker.topics[missing] = topic
    assert answers(world, 1)[0][0] == (OK if missing == ACKS else DEAD_LETTERED)
    assert payloads(world, NEXT) == (["second"] if missing == ACKS else [])
    assert len(world.dead_letters()) == (missing == DEAD)


@GUARANTEES
def test_a_follow_up_request_that_no_record_can_hold_makes_a_dead_letter(world: World, guarantee: str) -> None:
    world.request("bad", work=sending(FollowUp(NEXT, None, "x" * 2_000)))
    world.process(guarantee=guarantee, max_answer_bytes=1_500)
    assert answers(world, 1) == [(DEAD_LETTERED, "FollowUpRefused")]
    assert payloads(world, NEXT) == []


@GUARANTEES
def test_a_follow_up_request_that_is_too_large_for_its_topic_makes_a_dead_letter(world: World, guarantee: str) -> None:
    world.broker.topics[NEXT].max_bytes = 1_000
    world.request("bad", work=sending(FollowUp(NEXT, None, "x" * 2_000)))
    process = world.process(guarantee=guarantee)
    assert answers(world, 1) == [(DEAD_LETTERED, "FollowUpRefused")]
    world.until(lambda: not process.loop._responder.outstanding)
    assert process.loop._responder.outstanding_bytes == 0


def test_the_answer_waits_until_the_follow_up_requests_are_confirmed(world: World) -> None:
    """A request that has an answer has sent its follow-up requests, also if their first delivery fails."""
    world.broker.fail(NEXT, "NOT_ENOUGH_REPLICAS", 3)
    world.request("first", work=sending(FollowUp(NEXT, None, "a"), FollowUp(NEXT, None, "b")))
    world.process()
    world.run(1.5)
    assert (len(payloads(world, NEXT)), world.broker.records(ACKS)) == (1, [])
    assert answers(world, 1) == [(OK, "")]
    assert sorted(payloads(world, NEXT)) == ["a", "b"]


def test_a_follow_up_request_is_not_repeated_after_the_partition_is_lost(world: World) -> None:
    world.broker.fail(NEXT, "NOT_ENOUGH_REPLICAS", 1)
    world.request("first", work=sending(FollowUp(NEXT, None, "a")))
    process = world.process()
    world.until(lambda: process.counter("delivery_failures_total", "NOT_ENOUGH_REPLICAS") == 1)
    world.broker.group("group").leave(process.consumer)  # the process joins again and starts the request again
    assert answers(world, 1) == [(OK, "")]
    world.until(lambda: not process.loop._responder.outstanding)
    assert process.loop._responder.outstanding_bytes == 0
    assert (process.counter("dropped_total"), payloads(world, NEXT)) == (1, ["a"])


def test_an_aborted_transaction_sends_no_follow_up_request_twice(world: World) -> None:
    world.request("first", work=sending(FollowUp(NEXT, None, "a")))
    process = world.process(guarantee="exactly-once")
    failures = deque([KafkaFailure("COORDINATOR_NOT_AVAILABLE", "scripted")] * 2)
    transactor: Any = process.transaction_thread._transactor
    end = transactor.end
    transactor.end = lambda transaction, _: end(
        transaction, Twist(failure=failures.popleft() if failures and transaction.messages else None)
    )
    assert answers(world, 1) == [(OK, "")]
    assert process.counter("transactions_aborted_total", "COORDINATOR_NOT_AVAILABLE") == 2
    assert (len(process.starts), payloads(world, NEXT)) == (1, ["a"])


@pytest.mark.parametrize("guarantee", ["at-least-once", "exactly-once"])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_a_chain_of_three_stages_has_one_answer_for_each_stage(guarantee: str, batch_size: int) -> None:
    """Each stage sends the next one; a failed attempt sends nothing."""

    def stage(request: Request, context: Context) -> str:
        name, _, item = request.payload.partition(" ")
        if name != "c":
            context.send(f"{chr(ord(name) + 1)} {item}", key=context.key)
        if context.attempt == 1 and int(item) % 3 == 0:
            raise ValueError(item)
        return request.payload

    def stages(batch: Batch, context: BatchContext) -> None:
        for task in batch:
            try:
                batch.ack(task, stage(task.request, task))
            except ValueError as error:
                batch.nack(task, str(error))

    with Cluster() as cluster:
        for number in range(6):
            cluster.submit(f"a {number}", key=str(number).encode())
        handler = stage if batch_size == 1 else stages
        for _ in range(2):
            cluster.start(handler, guarantee=guarantee, batch_size=batch_size, retry_backoff=(0.1, 0.1))
        found = cluster.answers(18)
        cluster.sleep(5.0)
        assert len(cluster.broker.records("answers")) == 18
    results = sorted(answer.result.decode() for answer in found)
    assert results == [f"{name} {number}" for name in "abc" for number in range(6)]
    assert all(answer.key == answer.result[-1:] for answer in found)


@GUARANTEES
@pytest.mark.parametrize("code", ["INVALID_RECORD", "MSG_SIZE_TOO_LARGE"])
@pytest.mark.parametrize(("refusals", "end"), [(1, (OK, "")), (2, (DEAD_LETTERED, "FollowUpRefused"))])
def test_follow_up_requests_that_are_refused_together_are_tried_one_by_one(
    world: World, guarantee: str, code: str, refusals: int, end: tuple[int, str]
) -> None:
    """The broker refuses a whole batch because of one of its records. What it refuses alone makes a dead letter."""
    world.request("first", work=sending(FollowUp(NEXT, None, "a"), FollowUp(NEXT, None, "b")))
    process = world.process(guarantee=guarantee)
    if guarantee == "exactly-once":
        refuse(process.transaction_thread._transactor, code, refusals)
    else:
        world.broker.fail(NEXT, code, 2 if refusals == 1 else 3)
    assert answers(world, 1) == [end]
    if end == (OK, ""):
        assert sorted(payloads(world, NEXT)) == ["a", "b"]
    world.until(lambda: not process.loop._responder.outstanding)
    assert process.loop._responder.outstanding_bytes == 0


def refuse(transactor: Any, code: str, refusals: int) -> None:
    """Refuse the first transactions with messages. The second of them has each message in a separate batch."""
    end, tried = transactor.end, 0

    def ended(transaction: Transaction, _twist: Twist) -> Any:
        nonlocal tried
        if not transaction.messages:
            return end(transaction, Twist())
        tried += 1
        assert transaction.one_by_one is (tried == 2)
        return end(
            transaction, Twist(failure=KafkaFailure(code, "scripted", topic=NEXT) if tried <= refusals else None)
        )

    transactor.end = ended
