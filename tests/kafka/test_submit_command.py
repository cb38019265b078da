"""``worker submit``, and wrong use of several commands. A thread of the test answers instead of a worker."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.kafka.support.following import following
from tests.kafka.support.murmur2 import partition_of
from tests.kafka.support.tool import Tool
from worker.codec import FAILED, OK, Response, decode_request
from worker.kafka.sender import Outgoing, deliver

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka_broker import Broker
    from worker.core.model import Record

pytestmark = pytest.mark.kafka


@pytest.fixture
def tool(broker: Broker) -> Tool:
    return Tool(broker)


Answering = contextlib.AbstractContextManager[None]


@pytest.fixture
def answering(tool: Tool) -> Callable[[Callable[[Response], int]], Answering]:
    """Return a function that starts a responder. Its argument can change an answer and returns how often to send it."""

    def respond(judge: Callable[[Response], int]) -> Answering:
        return following(tool.properties, tool.ends(tool.requests), lambda record: _answer(tool, judge, record))

    return respond


def _answer(tool: Tool, judge: Callable[[Response], int], record: Record) -> None:
    request = decode_request(record.value)
    answer = Response(sequence=request.sequence, isprocessed=True, outcome=OK, result=b"did it")
    answer.origin.topic, answer.origin.partition = record.partition
    answer.origin.offset = record.offset
    copies = judge(answer)
    deliver(tool.sender, [Outgoing(tool.answers, record.key, answer.SerializeToString())] * copies)


def once(_answer: Response) -> int:
    return 1


def test_submit_delivers_the_requests_of_a_file(tool: Tool, tmp_path: Path) -> None:
    """Payload, sequence, key and headers arrive, in the partition that Kafka's Java clients choose for the key."""
    table = tmp_path / "x.jsonl"
    table.write_text('{"payload": {"a": 1}, "headers": {"h": "v"}}\n"plain"\n{"payload": "c", "key": "own"}\n')

    done = tool("submit", "--file", str(table), "--job", "j")

    assert (done.code, done.out) == (0, "")
    assert f"3 of 3 requests delivered to {tool.requests}" in done.err
    records = sorted(tool.records(tool.requests), key=lambda record: decode_request(record.value).sequence)
    assert [decode_request(record.value).payload for record in records] == ['{"a":1}', "plain", "c"]
    assert [record.key for record in records] == [b"j/0000000001", b"j/0000000002", b"own"]
    assert records[0].headers == (("h", b"v"),)
    assert [record.partition.number for record in records] == [partition_of(r.key or b"", 4) for r in records]


def test_nothing_is_sent_when_a_line_is_wrong(tool: Tool, tmp_path: Path) -> None:
    """The whole file is checked first. The invalid line is named, with exit code 2."""
    table = tmp_path / "x.jsonl"
    table.write_text('"good"\n' * 1000 + "bad\n")

    done = tool("submit", "--file", str(table))

    assert done.code == 2
    assert f"{table}, line 1001: not JSON" in done.err
    assert set(tool.ends(tool.requests).values()) == {0}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["submit"], "either as arguments or with --file"),
        (["submit", "a", "--expect-ok"], "need --wait"),
        (["submit", "a", "--wait", "--timeout", "soon"], "must be a duration"),
        (["submit", "--file", os.devnull], "nothing to send"),
        (["dlq", "list", "--match", "colour=red"], "FIELD=PATTERN"),
    ],
)
def test_wrong_use_ends_in_a_line(tool: Tool, arguments: list[str], complaint: str) -> None:
    """The exit code is 2, and the line says what to do instead."""
    done = tool(*arguments)

    assert done.code == 2
    assert complaint in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "arguments", [["submit", "a"], ["submit", "a", "--wait"], ["status"], ["dlq", "list"], ["dlq", "replay"]]
)
def test_a_command_without_a_broker_ends_with_one_line(tool: Tool, arguments: list[str]) -> None:
    """The exit code is 4. The line has the address and the reason."""
    done = tool(*arguments, KAFKA_BOOTSTRAP_SERVER="127.0.0.1:1", KAFKA_CONNECT_TIMEOUT="1s")

    assert done.code == 4
    assert len(done.err.splitlines()) == 1
    assert "127.0.0.1:1" in done.err
    assert "Connection refused" in done.err


def test_a_missing_topic_is_named_and_not_created(tool: Tool) -> None:
    """A misspelt topic is an error, even if the broker would create it."""
    done = tool("submit", "a", KAFKA_REQUEST_TOPIC="misspelt")

    assert done.code == 4
    assert "there is no topic 'misspelt'" in done.err
    assert tool.cluster.find("misspelt") is None


def test_wait_ends_when_every_request_is_answered(
    tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]
) -> None:
    """The answers are counted and written as JSON lines. Answers to other requests do not count."""
    with answering(once):
        tool("submit", "before")
        done = tool("submit", "a", "b", "--start", "5", "--wait", "--output", "-", "--expect-ok")

    assert done.code == 0
    assert "2 of 2 requests answered: 2 OK" in done.err
    answers = sorted((json.loads(line) for line in done.out.splitlines()), key=lambda answer: answer["sequence"])
    assert [(answer["sequence"], answer["result"], answer["outcome"]) for answer in answers] == [
        (5, "did it", "OK"),
        (6, "did it", "OK"),
    ]
    assert {answer["origin"]["topic"] for answer in answers} == {tool.requests}


def test_answers_of_an_aborted_transaction_do_not_count(
    tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]
) -> None:
    """Only the committed answer counts, and the aborted one is no duplicate of it."""
    producer = Producer(
        {"bootstrap.servers": tool.environment["KAFKA_BOOTSTRAP_SERVER"], "transactional.id": tool.answers}
    )
    producer.init_transactions(20)

    def abort_one(answer: Response) -> int:
        producer.begin_transaction()
        producer.produce(tool.answers, answer.SerializeToString())
        producer.flush(20)
        producer.abort_transaction(20)
        return 1

    with answering(abort_one):
        done = tool("submit", "a", "--wait")

    assert done.code == 0
    assert "1 of 1 requests answered: 1 OK" in done.err


def test_wait_fails_on_duplicates(tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]) -> None:
    """Every request is answered, but one of them twice."""
    with answering(lambda answer: 2 if answer.sequence == 2 else 1):
        done = tool("submit", "a", "b", "c", "--wait")

    assert done.code == 1
    assert "3 of 3 requests answered: 3 OK" in done.err
    assert "1 duplicate answer:" in done.err


def test_wait_names_unanswered_requests(
    tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]
) -> None:
    """After the time-out it prints their origins."""
    with answering(lambda answer: int(answer.sequence != 2)):
        done = tool("submit", "a", "b", "c", "--wait", "--timeout", "2s")

    assert done.code == 1
    (left_out,) = (r for r in tool.records(tool.requests) if decode_request(r.value).sequence == 2)
    assert f"1 unanswered: {tool.requests}/{left_out.partition.number}/{left_out.offset}" in done.err


def test_expect_ok_fails_on_another_outcome(
    tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]
) -> None:
    """A failure is an answer, so ``--wait`` alone succeeds."""

    def fail(answer: Response) -> int:
        answer.outcome, answer.isprocessed = FAILED, False
        return 1

    with answering(fail):
        assert tool("submit", "a", "--wait").code == 0
        strict = tool("submit", "a", "--wait", "--expect-ok")

    assert strict.code == 1
    assert "1 of 1 requests answered: 1 FAILED" in strict.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_wait_prints_how_many_requests_are_answered(tool: Tool, number: signal.Signals) -> None:
    """Ctrl-C or SIGTERM ends the wait with exit code 130, without a traceback."""
    process = tool.start("submit", "a", "b", "--wait")
    assert process.stderr is not None
    while "requests delivered" not in process.stderr.readline():
        pass
    process.send_signal(number)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert "0 of 2 requests answered" in err
    assert "Traceback" not in err


def test_submit_names_the_requests_that_the_topic_refuses(tool: Tool, broker: Broker, tmp_path: Path) -> None:
    """It prints their sequences and the reason, and delivers the others."""
    small = broker.topic(config={"max.message.bytes": "20000"})
    table = tmp_path / "x.jsonl"
    table.write_text("\n".join(json.dumps("x" * (30_000 if n in {2, 3} else 10)) for n in range(1, 6)))

    done = tool("submit", "--file", str(table), KAFKA_REQUEST_TOPIC=small)

    assert done.code == 1
    assert "3 of 5 requests delivered" in done.err
    assert "MSG_SIZE_TOO_LARGE" in done.err
    assert "sequences 2-3" in done.err
