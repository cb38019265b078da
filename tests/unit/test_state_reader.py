"""The reader of a replica and its worker processes, over real sockets, with a scripted topic."""

from __future__ import annotations

import uuid
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from worker.core.model import Partition
from worker.core.task_state import CancelRequest, Origin, TaskState
from worker.kafka.state_reader import KeyValue, TopicFollower
from worker.state.client import KafkaStateTopic
from worker.state.config import ReaderConfig
from worker.state.frames import Frame, Kind, RecordFrame, pack, unpack
from worker.state.port import Begin, CaughtUp, Pair
from worker.state.reader import Reader
from worker.state.records import cancel_key, encode_cancel, encode_state, state_key

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from worker.state.port import News

PLACE = Partition("requests", 3)
ORIGIN = Origin("requests", 3, 41)
STATE = TaskState(ORIGIN, "b-0", 1, 5, 5, checkpoint=b"x" * 300_000, checkpoint_epoch=1)


class Topic:
    """A topic of one partition. The last ``hidden`` records have not been fetched yet."""

    def __init__(self) -> None:
        self.log: list[KeyValue] = []
        self.hidden = 0
        self.away = False
        self._read = 0

    def append(self, key: bytes, value: bytes | None) -> None:
        self.log.append(KeyValue(key, value))

    def poll(self, timeout: float) -> list[KeyValue]:
        end = len(self.log) - self.hidden
        records, self._read = self.log[self._read : end], max(self._read, end)
        return records

    def ends(self) -> dict[int, int] | None:
        return None if self.away else {0: len(self.log)}

    def has_reached(self, ends: Mapping[int, int]) -> bool:
        return self._read >= ends[0]


class Rig:
    def __init__(self) -> None:
        self.topic = Topic()
        self.config = ReaderConfig(f"test-{uuid.uuid4().hex}", "states", 1, {}, "INFO", "json")
        self.reader = Reader(self.config, cast("TopicFollower", self.topic))
        self.clients: list[KafkaStateTopic] = []

    def client(self, name: str = "a-0") -> KafkaStateTopic:
        client = KafkaStateTopic(
            name, self.config.address, "states", 1, cast("Any", SimpleNamespace(close=lambda: None))
        )
        self.clients.append(client)
        return client

    def exchange(self, client: KafkaStateTopic, turns: int = 20) -> list[News]:
        news: list[News] = []
        for _ in range(turns):
            news += client.receive()
            self.reader.turn(0.0)
        return [*news, *client.receive()]


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    for client in rig.clients:
        client.close()
    rig.reader.close()


def test_a_process_gets_the_current_state_and_then_every_change(rig: Rig) -> None:
    """It gets those of the partition that it follows, and only changes that others make."""
    rig.topic.append(state_key(ORIGIN), encode_state(STATE))
    rig.topic.append(state_key(Origin("requests", 4, 1)), None)
    client = rig.client()
    client.follow(PLACE, 7)
    first = Pair(state_key(ORIGIN), encode_state(STATE))
    assert rig.exchange(client) == [Begin(PLACE), first, CaughtUp(PLACE, 7)]
    request = Pair(cancel_key(ORIGIN), encode_cancel(CancelRequest(ORIGIN)))
    rig.topic.append(request.key, request.value)
    rig.topic.append(state_key(Origin("requests", 4, 1)), None)
    rig.topic.append(state_key(ORIGIN), None)
    assert rig.exchange(client) == [request, Pair(state_key(ORIGIN), None)]
    client.unfollow(PLACE)
    rig.exchange(client)
    rig.topic.append(request.key, request.value)
    assert rig.exchange(client) == []


def test_a_process_does_not_get_its_own_records_back(rig: Rig) -> None:
    """They are part of the current state when the process follows the partition again."""
    client, other = rig.client("b-0"), rig.client("c-0")
    for one in (client, other):
        one.follow(PLACE, 1)
        rig.exchange(one)
    rig.topic.append(state_key(ORIGIN), encode_state(STATE))
    assert rig.exchange(client) == []
    assert rig.exchange(other) == [Pair(state_key(ORIGIN), encode_state(STATE))]
    client.follow(PLACE, 2)
    assert len(rig.exchange(client)) == 3


def test_a_partition_is_caught_up_when_all_earlier_records_have_been_read(rig: Rig) -> None:
    """It is not caught up while an earlier record is unread, or while the end of the topic is not known."""
    rig.topic.append(state_key(ORIGIN), encode_state(STATE))
    rig.topic.hidden, rig.topic.away = 1, True
    client = rig.client()
    client.follow(PLACE, 1)
    assert rig.exchange(client) == []
    rig.topic.away = False
    assert rig.exchange(client) == []
    rig.topic.hidden = 0
    assert len(rig.exchange(client)) == 3


def test_a_restarted_reader_sends_everything_again(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("worker.state.client.CONNECT_SECONDS", 0.0)
    client = rig.client()
    client.follow(PLACE, 1)
    assert rig.exchange(client) == [Begin(PLACE), CaughtUp(PLACE, 1)]
    rig.reader.close()
    assert list(client.receive()) == []
    rig.reader = Reader(rig.config, cast("TopicFollower", rig.topic))
    assert rig.exchange(client) == [Begin(PLACE), CaughtUp(PLACE, 1)]


def test_the_reader_forgets_a_process_that_has_disconnected(rig: Rig) -> None:
    client = rig.client()
    client.follow(PLACE, 1)
    rig.exchange(client)
    client.close()
    rig.clients.clear()
    rig.reader.turn(0.0)
    rig.topic.append(state_key(ORIGIN), encode_state(STATE))
    rig.reader.turn(0.0)
    assert rig.reader.connected == 0


def test_frames_are_unpacked_from_bytes_in_any_pieces() -> None:
    """Each frame is returned when it is complete."""
    first, last = Frame(Kind.FOLLOW, "a/b/3", 9), Frame(Kind.HELLO, "")
    frames: list[Frame | RecordFrame] = [first, RecordFrame(b"k", b""), RecordFrame(b"k", None), last]
    data, buffer, found = b"".join([pack(frame) for frame in frames]), bytearray(), []
    for byte in data:
        buffer.append(byte)
        found += list(unpack(buffer))
    assert found == frames
    assert not buffer
