"""The command line's tools against a real broker. A thread of the test answers in the worker's place."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from worker.cli.access import Access
from worker.cli.journal import Journal
from worker.cli.replay import plan, read_letters
from worker.codec import FAILED, OK, Response, decode_request
from worker.core.model import Partition, Record
from worker.kafka.cluster import Cluster
from worker.kafka.reader import Reader
from worker.kafka.sender import Outgoing, Sender, deliver

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kafka_broker import Broker

pytestmark = pytest.mark.kafka


class Done(NamedTuple):
    code: int
    out: str
    err: str


class Tool:
    """The command line, and the topics it works on."""

    def __init__(self, broker: Broker) -> None:
        self.requests, self.answers, self.letters = broker.topics(3)
        self.properties = {"bootstrap.servers": broker.bootstrap, "group.id": "test"}
        self.cluster = Cluster(self.properties)
        self.sender = Sender(self.properties)
        self.environment = {
            "KAFKA_BOOTSTRAP_SERVER": broker.bootstrap,
            "KAFKA_REQUEST_TOPIC": self.requests,
            "KAFKA_ACK_TOPIC": self.answers,
            "KAFKA_DEAD_LETTER_TOPIC": self.letters,
            "KAFKA_CONSUMER_GROUP_ID": f"group-{self.requests}",
            "WORKER_HTTP_PORT": "0",
        }

    def start(self, *arguments: str, **environment: str) -> subprocess.Popen[str]:
        own = {name: value for name, value in os.environ.items() if not name.startswith(("KAFKA_", "WORKER_"))}
        return subprocess.Popen(
            [sys.executable, "-m", "worker", *arguments],
            env={**own, **self.environment, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: str, **environment: str) -> Done:
        process = self.start(*arguments, **environment)
        out, err = process.communicate(timeout=50)
        return Done(process.returncode, out, err)

    def ends(self, topic: str) -> dict[Partition, int]:
        return {place: span.end for place, span in self.cluster.spans(self.cluster.partitions(topic)).items()}

    def records(self, topic: str) -> list[Record]:
        starts = dict.fromkeys(self.cluster.partitions(topic), 0)
        with contextlib.closing(Reader(self.properties, starts)) as reader:
            return list(reader.to_end())


@pytest.fixture
def tool(broker: Broker) -> Tool:
    return Tool(broker)


Answering = contextlib.AbstractContextManager[None]


@pytest.fixture
def answering(tool: Tool) -> Callable[[Callable[[Response], int]], Answering]:
    """A responder: gives as many answers as the function says, which may also change them."""

    @contextlib.contextmanager
    def respond(judge: Callable[[Response], int]) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=_answer, args=(tool, judge, stop))
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()

    return respond


def _answer(tool: Tool, judge: Callable[[Response], int], stop: threading.Event) -> None:
    with contextlib.closing(Reader(tool.properties, tool.ends(tool.requests))) as reader:
        while not stop.is_set():
            for record in reader.poll(0.1):
                request = decode_request(record.value)
                answer = Response(sequence=request.sequence, isprocessed=True, outcome=OK, result=b"did it")
                answer.origin.topic, answer.origin.partition = record.partition
                answer.origin.offset = record.offset
                copies = judge(answer)
                deliver(tool.sender, [Outgoing(tool.answers, record.key, answer.SerializeToString())] * copies)


def once(_answer: Response) -> int:
    return 1


# ---------------------------------------------------------------- submit


def test_submit_delivers_what_was_written(tool: Tool, tmp_path: Path) -> None:
    """Payload, sequence, key and headers arrive, in the partition that Kafka's Java clients give the key."""
    table = tmp_path / "x.jsonl"
    table.write_text('{"payload": {"a": 1}, "headers": {"h": "v"}}\n"plain"\n{"payload": "c", "key": "own"}\n')

    done = tool("submit", "--file", str(table), "--job", "j")

    assert (done.code, done.out) == (0, "")
    assert f"3 of 3 requests delivered to {tool.requests}" in done.err
    records = sorted(tool.records(tool.requests), key=lambda record: decode_request(record.value).sequence)
    assert [decode_request(record.value).payload for record in records] == ['{"a":1}', "plain", "c"]
    assert [record.key for record in records] == [b"j/0000000001", b"j/0000000002", b"own"]
    assert records[0].headers == (("h", b"v"),)
    assert [record.partition.number for record in records] == [java_partition(r.key or b"", 4) for r in records]


def java_partition(key: bytes, partitions: int) -> int:
    """Kafka's DefaultPartitioner, from its published definition."""
    m, mask = 0x5BD1E995, 0xFFFFFFFF
    h = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        k = int.from_bytes(key[at : at + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    if key[whole:]:
        h = (h ^ int.from_bytes(key[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    h ^= h >> 15
    return (h & 0x7FFFFFFF) % partitions


def test_nothing_is_sent_when_a_line_is_wrong(tool: Tool, tmp_path: Path) -> None:
    """The whole file is checked first; the fault is named, with exit code 2."""
    table = tmp_path / "x.jsonl"
    table.write_text('"good"\n' * 1000 + "bad\n")

    done = tool("submit", "--file", str(table))

    assert done.code == 2
    assert f"{table}, line 1001: not JSON" in done.err
    assert set(tool.ends(tool.requests).values()) == {0}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["submit"], "one of the two"),
        (["submit", "a", "--expect-ok"], "need --wait"),
        (["submit", "a", "--wait", "--timeout", "soon"], "must be a duration"),
        (["submit", "--file", os.devnull], "nothing to send"),
        (["dlq", "list", "--match", "colour=red"], "FIELD=PATTERN"),
    ],
)
def test_wrong_use_ends_in_a_line(tool: Tool, arguments: list[str], complaint: str) -> None:
    """Exit code 2 and what to do instead."""
    done = tool(*arguments)

    assert done.code == 2
    assert complaint in done.err
    assert "Traceback" not in done.err


@pytest.mark.parametrize(
    "arguments", [["submit", "a"], ["submit", "a", "--wait"], ["status"], ["dlq", "list"], ["dlq", "replay"]]
)
def test_a_broker_that_is_away_ends_in_a_line(tool: Tool, arguments: list[str]) -> None:
    """Exit code 4 and one line with the address and the reason, within the time-out."""
    done = tool(*arguments, KAFKA_BOOTSTRAP_SERVER="127.0.0.1:1", KAFKA_CONNECT_TIMEOUT="1s")

    assert done.code == 4
    assert len(done.err.splitlines()) == 1
    assert "127.0.0.1:1" in done.err
    assert "Connection refused" in done.err


def test_a_missing_topic_is_named_and_not_made(tool: Tool) -> None:
    """A misspelt topic is an error, also where the broker would make it."""
    done = tool("submit", "a", KAFKA_REQUEST_TOPIC="misspelt")

    assert done.code == 4
    assert "there is no topic 'misspelt'" in done.err
    assert tool.cluster.find("misspelt") is None


def test_wait_ends_when_every_request_is_answered(
    tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]
) -> None:
    """The answers are summed up and written as JSON lines; answers to other requests do not count."""
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
    """Only what is committed is an answer: the one that was taken back is not counted with the one that stands."""
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
    """Each request answered is not enough: one was answered twice."""
    with answering(lambda answer: 2 if answer.sequence == 2 else 1):
        done = tool("submit", "a", "b", "c", "--wait")

    assert done.code == 1
    assert "3 of 3 requests answered: 3 OK" in done.err
    assert "1 duplicate answers" in done.err


def test_wait_names_what_was_not_answered(
    tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]
) -> None:
    """After the time-out the open requests are named by their origin."""
    with answering(lambda answer: int(answer.sequence != 2)):
        done = tool("submit", "a", "b", "c", "--wait", "--timeout", "2s")

    assert done.code == 1
    (left_out,) = (r for r in tool.records(tool.requests) if decode_request(r.value).sequence == 2)
    assert f"1 unanswered: {left_out.partition}@{left_out.offset}" in done.err


def test_expect_ok_fails_on_another_outcome(
    tool: Tool, answering: Callable[[Callable[[Response], int]], Answering]
) -> None:
    """A failure is an answer, so it fails only who expects OK."""

    def fail(answer: Response) -> int:
        answer.outcome, answer.isprocessed = FAILED, False
        return 1

    with answering(fail):
        assert tool("submit", "a", "--wait").code == 0
        strict = tool("submit", "a", "--wait", "--expect-ok")

    assert strict.code == 1
    assert "1 of 1 requests answered: 1 FAILED" in strict.err


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_wait_that_is_interrupted_says_how_far_it_came(tool: Tool, number: signal.Signals) -> None:
    """Ctrl-C ends the wait in order, with exit code 130."""
    process = tool.start("submit", "a", "b", "--wait")
    assert process.stderr is not None
    while "requests delivered" not in process.stderr.readline():
        pass
    process.send_signal(number)
    _, err = process.communicate(timeout=20)

    assert process.returncode == 130
    assert "0 of 2 requests answered" in err
    assert "Traceback" not in err


def test_what_the_topic_does_not_take_is_named(tool: Tool, broker: Broker, tmp_path: Path) -> None:
    """The sequences that were not delivered are named, with the reason; the others are."""
    small = broker.topic(config={"max.message.bytes": "20000"})
    table = tmp_path / "x.jsonl"
    table.write_text("\n".join(json.dumps("x" * (30_000 if n in {2, 3} else 10)) for n in range(1, 6)))

    done = tool("submit", "--file", str(table), KAFKA_REQUEST_TOPIC=small)

    assert done.code == 1
    assert "3 of 5 requests delivered" in done.err
    assert "MSG_SIZE_TOO_LARGE" in done.err
    assert "sequences 2-3" in done.err


# ---------------------------------------------------------------- status


def test_status_counts_lag_members_answers_and_dead_letters(tool: Tool) -> None:
    """A member that owns partitions is shown beside them; what it has not committed is lag."""
    tool("submit", *"abcdefgh")
    deliver(tool.sender, [Outgoing(tool.answers, b"k", b"v")] * 3 + [Outgoing(tool.letters, b"k", b"v")])
    with member(tool) as partitions:
        report = json.loads(tool("status", "--json").out)
        shown = tool("status")

    assert report["lag"] == 7
    assert (report["answers"]["records"], report["dead_letters"]["records"]) == (3, 1)
    (who,) = report["members"]
    assert (who["client_id"], who["partitions"]) == ("replica-0", sorted(str(place) for place in partitions))
    assert {row["member"] for row in report["partitions"]} == {"replica-0"}
    assert sorted(row["end"] for row in report["partitions"]) == sorted(tool.ends(tool.requests).values())
    assert shown.code == 0
    assert "lag 7" in shown.out
    assert "replica-0" in shown.out


@contextlib.contextmanager
def member(tool: Tool) -> Iterator[list[Partition]]:
    """A member of the group that owns every partition and has committed the first record of one."""
    assigned: list[Partition] = []

    def note(_consumer: Consumer, places: list[TopicPartition]) -> None:
        assigned.extend(Partition(place.topic, place.partition) for place in places)

    consumer = Consumer(
        {
            "bootstrap.servers": tool.environment["KAFKA_BOOTSTRAP_SERVER"],
            "group.id": tool.environment["KAFKA_CONSUMER_GROUP_ID"],
            "client.id": "replica-0",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([tool.requests], on_assign=note)
    try:
        while (message := consumer.poll(1)) is None:
            pass
        consumer.commit(message=message, asynchronous=False)
        yield assigned
    finally:
        consumer.close()


def test_status_of_a_group_that_never_was(tool: Tool) -> None:
    """Nobody and nothing is no error; a dead-letter topic that is not there yet is none either."""
    done = tool("status", "--json", KAFKA_DEAD_LETTER_TOPIC="not-yet")

    report = json.loads(done.out)
    assert (done.code, report["lag"], report["members"]) == (0, 0, [])
    assert report["dead_letters"] == {"topic": "not-yet", "records": None}


# ---------------------------------------------------------------- dead letters


def dead_letter(tool: Tool, number: int, error: str = "ValueError") -> Outgoing:
    return Outgoing(
        tool.letters,
        f"k{number}".encode(),
        f"value {number}".encode(),
        (
            ("trace", b"\xff\x00"),
            ("x-origin-topic", tool.requests.encode()),
            ("x-origin-partition", b"1"),
            ("x-origin-offset", str(number).encode()),
            ("x-attempts", b"3"),
            ("x-error-type", error.encode()),
            ("x-error-message", f"[bold]no {number}".encode()),
        ),
    )


@pytest.fixture
def letters(tool: Tool) -> list[Outgoing]:
    """Six dead letters, two of them of another kind."""
    sent = [dead_letter(tool, number, "KeyError" if number in {2, 4} else "ValueError") for number in range(6)]
    deliver(tool.sender, sent)
    return sent


@pytest.mark.usefixtures("letters")
def test_dead_letters_are_listed(tool: Tool) -> None:
    """By the headers of the contract, filtered, as JSON or as a table that keeps brackets."""
    rows = [json.loads(line) for line in tool("dlq", "list", "--json", "--match", "error_type=Key*").out.splitlines()]
    table = tool("dlq", "list", "--limit", "2")

    assert [(row["origin_topic"], row["origin_partition"], row["attempts"]) for row in rows] == [
        (tool.requests, 1, 3)
    ] * 2
    assert sorted((row["origin_offset"], row["key"]) for row in rows) == [(2, "k2"), (4, "k4")]
    assert not any(row["replayed"] for row in rows)
    assert "ValueError: [bold]no" in table.out
    assert f"2 of 6 dead letters in {tool.letters}" in table.err


@pytest.mark.usefixtures("letters")
def test_a_replay_sends_each_letter_once(tool: Tool) -> None:
    """First the ones that match, then the others, then nothing; each as it was, but for the worker's headers."""
    first = tool("dlq", "replay", "--match", "error_type=KeyError", "--yes")
    second = tool("dlq", "replay", "--yes")
    third = tool("dlq", "replay", "--yes")

    assert [done.code for done in (first, second, third)] == [0, 0, 0]
    assert "2 of 2 requests sent" in first.err
    assert "4 of 4 requests sent" in second.err
    assert "0 dead letters to replay, 6 were replayed before" in third.err
    sent = tool.records(tool.requests)
    assert sorted((record.key, record.value) for record in sent) == [
        (f"k{n}".encode(), f"value {n}".encode()) for n in range(6)
    ]
    places = {(r.key, f"{tool.letters}/{r.partition.number}/{r.offset}") for r in tool.records(tool.letters)}
    assert {(r.key, (dict(r.headers)["x-replayed-from"] or b"").decode()) for r in sent} == places
    assert {r.headers[:-1] for r in sent} == {(("trace", b"\xff\x00"),)}
    listed = [json.loads(line) for line in tool("dlq", "list", "--json").out.splitlines()]
    assert all(row["replayed"] for row in listed)


@pytest.mark.usefixtures("letters")
def test_a_dry_run_sends_nothing(tool: Tool) -> None:
    """It says what would be sent, and leaves no trace."""
    done = tool("dlq", "replay", "--dry-run", "--limit", "4")

    assert (done.code, set(tool.ends(tool.requests).values())) == (0, {0})
    assert "4 dead letters to replay" in done.err
    assert tool.cluster.find(f"{tool.letters}.replayed") is None


@pytest.mark.usefixtures("letters")
def test_a_replay_that_died_is_not_repeated(tool: Tool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that sent requests and died before it recorded them is found out by what it sent."""
    for name, value in tool.environment.items():
        monkeypatch.setenv(name, value)
    access = Access()
    chosen = plan(read_letters(access), Journal(access), [], limit=2)
    Journal(access).begin(tool.sender, chosen.topics, [])
    deliver(tool.sender, [letter.request() for letter in read_letters(access) if letter.mark in chosen.chosen])

    again = tool("dlq", "replay", "--yes")

    assert "4 of 4 requests sent" in again.err
    assert sorted(record.key or b"" for record in tool.records(tool.requests)) == [f"k{n}".encode() for n in range(6)]
    assert "0 dead letters to replay, 6 were replayed before" in tool("dlq", "replay").err


def test_letters_that_cannot_be_replayed_are_named(tool: Tool) -> None:
    """A record that is no dead letter stays where it is, and the others are sent."""
    deliver(tool.sender, [Outgoing(tool.letters, b"k", b"foreign"), dead_letter(tool, 1)])

    done = tool("dlq", "replay", "--yes")

    assert "cannot be replayed: it has no x-origin-topic header" in done.err
    assert [record.key for record in tool.records(tool.requests)] == [b"k1"]


def test_no_dead_letter_topic_is_no_dead_letters(tool: Tool) -> None:
    """Before the first dead letter there is nothing to list or replay."""
    for command in ("list", "replay"):
        assert tool("dlq", command, KAFKA_DEAD_LETTER_TOPIC="not-yet").code == 0
