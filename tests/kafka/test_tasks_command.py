"""``worker tasks``, ``top`` and ``cancel`` on a real broker. The test writes the records that workers would write."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import signal
import struct
import termios
import time
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import Consumer, TopicPartition

from tests.kafka.support.commands import WAIT_LIMIT, Commands
from tests.kafka.support.following import following
from worker.codec import Response, encode_request
from worker.core.commit_metadata import CommitMetadata, encode
from worker.core.model import Partition, Record
from worker.core.task_state import CancelRequest, Origin, TaskState
from worker.kafka.sender import Outgoing, Sender, deliver
from worker.state.records import decode, encode_state, partition_of, state_key

if TYPE_CHECKING:
    import contextlib
    from collections.abc import Callable

    from tests.kafka_broker import Broker

pytestmark = pytest.mark.kafka

STATE_PARTITIONS = 3


class Group(Commands):
    """The topics of a group, the commands for them, and the records that its workers would write."""

    def __init__(self, broker: Broker) -> None:
        self.requests, self.answers = broker.topics(2, partitions=2)
        self.states = broker.topic(STATE_PARTITIONS, {"cleanup.policy": "compact"})
        self.name = f"group-{self.requests}"
        self.properties = {"bootstrap.servers": broker.bootstrap, "group.id": self.name}
        self.sender = Sender(self.properties)
        super().__init__(
            {
                "KAFKA_BOOTSTRAP_SERVER": broker.bootstrap,
                "KAFKA_REQUEST_TOPIC": self.requests,
                "KAFKA_ACK_TOPIC": self.answers,
                "KAFKA_STATE_TOPIC": self.states,
                "KAFKA_CONSUMER_GROUP_ID": self.name,
            }
        )

    def send(self, *records: Outgoing) -> list[int]:
        """Write records, and return their offsets."""
        deliveries = deliver(self.sender, records)
        assert [each.failure for each in deliveries] == [None] * len(records)
        return [each.offset for each in deliveries if each.offset is not None]

    def request(self, key: str, number: int = 0) -> Origin:
        record = Outgoing(self.requests, key.encode(), encode_request(1, key), partition=number)
        return Origin(self.requests, number, self.send(record)[0])

    def state(self, origin: Origin, **fields: Any) -> TaskState:
        """Write the record of a task that has run for a minute, and return its state."""
        now = time.time_ns()
        times = {"started_ns": now - 60 * 10**9, "updated_ns": now}
        state = TaskState(origin, epoch=1, **{"worker": "replica-0-1", **times, **fields})
        number = partition_of(origin, STATE_PARTITIONS)
        self.send(Outgoing(self.states, state_key(origin), encode_state(state), partition=number))
        return state

    def answer(self, origin: Origin, outcome: str, attempt: int = 1) -> None:
        response = Response(outcome=outcome, attempt=attempt)
        response.origin.topic, response.origin.partition, response.origin.offset = origin
        self.send(Outgoing(self.answers, b"k", response.SerializeToString(), partition=0))

    def remove(self, origin: Origin, key: bytes) -> None:
        """Write a tombstone."""
        self.send(Outgoing(self.states, key, None, partition=partition_of(origin, STATE_PARTITIONS)))

    def commit(self, offset: int, metadata: CommitMetadata) -> None:
        consumer = Consumer(self.properties)
        try:
            place = TopicPartition(self.requests, 0, offset, encode(metadata, offset))
            consumer.commit(offsets=[place], asynchronous=False)
        finally:
            consumer.close()


@pytest.fixture
def group(broker: Broker) -> Group:
    return Group(broker)


def reacting(group: Group, react: Callable[[Origin, bytes], None]) -> contextlib.AbstractContextManager[None]:
    """Return a context in which ``react`` is called for each cancel request, in the role of a worker."""
    starts = dict.fromkeys((Partition(group.states, number) for number in range(STATE_PARTITIONS)), 0)

    def see(record: Record) -> None:
        found = decode(record.key, record.value)
        if isinstance(found, CancelRequest):
            react(found.origin, record.key or b"")

    return following(group.properties, starts, see)


# ---------------------------------------------------------------- tasks and top


def test_the_long_tasks_of_all_partitions_are_listed(group: Group) -> None:
    """The last record of each task counts. Settled tasks are not listed."""
    settled = group.state(Origin(group.requests, 0, 7))
    group.state(Origin(group.requests, 0, 8), progress=0.1)
    group.state(Origin(group.requests, 0, 8), progress=0.5, message="half", key=b"order-8", sequence=8)
    group.state(Origin(group.requests, 1, 0), worker="replica-1-0", updated_ns=time.time_ns() - 60 * 10**9)
    group.remove(settled.origin, state_key(settled.origin))

    shown = {one["origin"]["partition"]: one for one in json.loads(group("tasks", "--json").out)}

    assert shown[0] == {
        "origin": {"topic": group.requests, "partition": 0, "offset": 8},
        "key": "order-8",
        "sequence": 8,
        "worker": "replica-0-1",
        "attempt": 1,
        "started_at": shown[0]["started_at"],
        "seconds": pytest.approx(60, abs=20),
        "progress": 0.5,
        "message": "half",
        "state": "running",
    }
    assert (shown[1]["worker"], shown[1]["state"]) == ("replica-1-0", "silent")
    assert len(shown) == 2
    assert f"{group.requests}/0/8" in group("tasks").out


def test_top_follows_the_topic_on_a_terminal(group: Group) -> None:
    """The page changes with the records and the width of the terminal, until Ctrl-C."""
    origin = Origin(group.requests, 0, 8)
    group.state(origin, progress=0.25)
    with Terminal(group, 80) as terminal:
        terminal.wait_for(" 25%")
        group.state(origin, progress=0.75, message="nearly")
        terminal.wait_for("nearly")
        terminal.resize(140)
        terminal.wait_for("MESSAGE")
        terminal.process.send_signal(signal.SIGINT)
        terminal.wait_for("total", last=True)
        assert terminal.process.wait(WAIT_LIMIT) == 130


def test_top_prints_once_into_a_pipe(group: Group) -> None:
    group.state(Origin(group.requests, 0, 8), progress=0.25)
    done = group("top")
    assert (done.code, done.err) == (0, "")
    assert " 25%" in done.out
    assert "\x1b" not in done.out


class Terminal:
    """``worker top`` on a terminal of 24 lines."""

    def __init__(self, group: Group, columns: int) -> None:
        self._ours, theirs = pty.openpty()
        self.resize(columns)
        self.process = group.start("top", stdout=theirs, COLUMNS="", LINES="")
        os.close(theirs)
        self.seen = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()
        os.close(self._ours)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))

    def wait_for(self, text: str, *, last: bool = False) -> None:
        """Read until the text is shown. With ``last``, read until the program has closed the terminal."""
        self.seen = b""
        deadline = time.monotonic() + WAIT_LIMIT
        while last or text.encode() not in self.seen:
            assert time.monotonic() < deadline, self.seen[-2000:]
            try:
                self.seen += os.read(self._ours, 65536)
            except OSError:  # closed
                break
        assert text.encode() in self.seen


# ---------------------------------------------------------------- cancel


def test_cancel_reports_how_each_request_was_reached(group: Group) -> None:
    """The cases are: committed, answered or completed above the commit, waiting, running, and not seen by a worker."""
    committed, answered, completed, waits, runs, nobody = (group.request(f"k{number}") for number in range(6))
    group.commit(1, CommitMetadata(completed=((2, 3),)))
    group.answer(answered, "OK")

    def react(origin: Origin, key: bytes) -> None:
        if origin == waits:
            group.answer(origin, "CANCELLED", attempt=0)
        if origin in (waits, runs):
            group.remove(origin, key)

    with reacting(group, react):
        done = group("cancel", committed, answered, completed, waits, runs, nobody, "--timeout", "6s")

    assert [line.partition("  ")[2] for line in done.out.splitlines()] == [
        "answered already",
        "answered already",
        "answered already",
        "cancelled (never started)",
        "asked to stop",
        "not reached yet",
    ]
    assert done.code == 1


def test_cancel_finds_keys_and_jobs_in_the_request_topic(group: Group) -> None:
    origins = [group.request("order-17"), group.request("tuesday/0000000001", 1), group.request("tuesday/0000000002")]
    group.request("other")
    with reacting(group, group.remove):
        by_key = group("cancel", "--key", "order-17")
        by_job = group("cancel", "--all-of", "tuesday")

    assert (by_key.code, by_key.out) == (0, f"{origins[0]}  order-17  asked to stop\n")
    assert by_job.code == 0
    assert sorted(line.split()[0] for line in by_job.out.splitlines()) == sorted(map(str, origins[1:]))


@pytest.mark.parametrize(
    ("arguments", "environment", "code", "message"),
    [
        (["tasks"], {"KAFKA_STATE_TOPIC": "misspelt"}, 4, "there is no topic 'misspelt'"),
        (["cancel", "requests/0/1"], {"KAFKA_STATE_TOPIC": "misspelt"}, 4, "there is no topic 'misspelt'"),
        (["top"], {"KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1", "KAFKA_CONNECT_TIMEOUT": "1s"}, 4, "Connection refused"),
    ],
)
def test_a_missing_topic_or_broker_is_reported_in_one_line(
    group: Group, arguments: list[str], environment: dict[str, str], code: int, message: str
) -> None:
    done = group(*arguments, **environment)
    assert (done.code, len(done.err.splitlines())) == (code, 1)
    assert message in done.err
