"""Helpers for tests of transactors: members of a group, transactions, and their visible results."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Protocol

import confluent_kafka as ck
from confluent_kafka import admin

from tests.contract.recorder import Recorder
from worker.core.model import Partition
from worker.kafka import properties
from worker.kafka.ports import Message, Position, Transaction
from worker.kafka.reader import Reader
from worker.kafka.transaction_properties import checker, transactional
from worker.kafka.transactional import ConfluentTransactor
from worker.testing.broker import FakeBroker
from worker.testing.clock import Clock
from worker.testing.transactor import FakeTransactor

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.kafka_broker import Broker
    from worker.kafka.ports import Consumer, Transactor

_Spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]  # not exported in the client's types

LIMIT = 30.0  # seconds; only a failing test waits this long
MAX_BYTES = 2_000


class Scene(Protocol):
    """One group with one request partition, and the answers to it."""

    def transactor(self) -> Transactor: ...
    def transaction(
        self, answers: Sequence[bytes], offset: int, text: str, *, member: object = None
    ) -> Transaction: ...
    def stale_member(self) -> object: ...
    def answers(self) -> list[bytes | None]: ...
    def position(self) -> Position | None: ...
    def close(self) -> None: ...


class RealScene:
    """A scene on a real broker, with members under one of the group protocols."""

    def __init__(self, broker: Broker, protocol: str = "consumer", timeout: float = 10.0) -> None:
        self.broker, self._protocol = broker, protocol
        self.requests = Partition(broker.topic(1), 0)
        self.topic = broker.topic(2, {"max.message.bytes": str(MAX_BYTES)})
        group = f"g-{uuid.uuid4().hex[:12]}"
        # The default is to wait 30 s for a topic that does not exist.
        given = {"transaction.timeout.ms": str(int(timeout * 1000)), "topic.metadata.propagation.max.ms": "1000"}
        self.link = properties.Link(broker.bootstrap, group, given, {protocol: 60.0})
        self.name = f"{group}-0"
        self._clients: list[Any] = []
        self._admin = admin.AdminClient({"bootstrap.servers": broker.bootstrap})
        self._member: ck.Consumer | None = None

    def transactor(self, name: str | None = None) -> ConfluentTransactor:
        rendered = transactional(self.link, "contract", name or self.name, MAX_BYTES)
        made = ConfluentTransactor(rendered, checker=checker(self.link, "contract"))
        self._clients.append(made)
        return made

    def member(self) -> ck.Consumer:
        """Return a member that has the partition."""
        member = ck.Consumer(properties.consumer(self.link, "contract", self._protocol))
        self._clients.append(member)
        member.subscribe([self.requests.topic])
        end = time.monotonic() + LIMIT
        while not member.assignment():
            assert time.monotonic() < end
            member.poll(0.1)
        return member

    def stale_member(self) -> object:
        """Return the metadata of a member that has left the group."""
        member = self.member()
        known = member.consumer_group_metadata()
        member.close()
        return known

    def transaction(self, answers: Sequence[bytes], offset: int, text: str, *, member: object = None) -> Transaction:
        if member is None:
            self._member = self._member or self.member()
            member = self._member.consumer_group_metadata()
        messages = [Message(self.topic, b"k", answer, (("h", b"1"),)) for answer in answers]
        return Transaction(messages, {self.requests: Position(offset, text)}, member)

    def answers(self) -> list[bytes | None]:
        starts = {Partition(self.topic, number): 0 for number in range(2)}
        reader = Reader(checker(self.link, "contract"), starts)
        values = [record.value for record in reader.to_end()]
        reader.close()
        return values

    def position(self) -> Position | None:
        client = ck.Consumer(checker(self.link, "contract"))
        (found,) = client.committed([ck.TopicPartition(*self.requests)], LIMIT)
        client.close()
        return None if found.offset < 0 else Position(found.offset, found.metadata or "")

    def until_given_up(self) -> None:
        """Wait until the coordinator has aborted the open transaction, whose answers have arrived.

        The coordinator looks for timed-out transactions at intervals.
        """
        end = time.monotonic() + LIMIT
        while not self.is_open():
            assert time.monotonic() < end, "no transaction was ever open"
            time.sleep(0.05)
        self.until_ended()

    def until_ended(self) -> None:
        """Wait until no transaction is open. The coordinator writes its markers a while after its reply."""
        end = time.monotonic() + LIMIT
        while self.is_open():
            assert time.monotonic() < end, "a transaction is still open"
            time.sleep(0.05)

    def is_open(self) -> bool:
        """Return whether there are answers beyond the last stable offset."""
        return self._ends(ck.IsolationLevel.READ_COMMITTED) != self._ends(ck.IsolationLevel.READ_UNCOMMITTED)

    def _ends(self, isolation: ck.IsolationLevel) -> list[int]:
        latest = {ck.TopicPartition(self.topic, number): _Spec.latest() for number in range(2)}
        answers = self._admin.list_offsets(latest, isolation_level=isolation)
        return [found.result(LIMIT).offset for found in answers.values()]

    def close(self) -> None:
        for client in self._clients:
            client.close()


class FakeScene:
    """A scene in memory."""

    def __init__(self) -> None:
        self.broker = FakeBroker(Clock())
        self.requests = Partition(self.broker.create("requests", 1), 0)
        self.topic = self.broker.create("answers", 2, MAX_BYTES)
        self._member = self._join()

    def _join(self) -> Consumer:
        member = self.broker.consumer("group")
        Recorder().listen(member, self.requests.topic)
        return member

    def transactor(self) -> Transactor:
        return FakeTransactor(self.broker, "group")

    def stale_member(self) -> object:
        member = self._join()
        member.close()
        return member.membership()

    def transaction(self, answers: Sequence[bytes], offset: int, text: str, *, member: object = None) -> Transaction:
        messages = [Message(self.topic, b"k", answer, (("h", b"1"),)) for answer in answers]
        return Transaction(messages, {self.requests: Position(offset, text)}, member or self._member.membership())

    def answers(self) -> list[bytes | None]:
        return [record.value for record in self.broker.records(self.topic)]

    def position(self) -> Position | None:
        return self.broker.group("group").committed.get(self.requests)

    def close(self) -> None:
        """Do nothing: nothing outlives the test."""


def pid_of(broker: Broker) -> int:
    folder: Path | str = broker._environment["KAFKA_DATA_DIR"]
    with open(f"{folder}/broker.pid", encoding="ascii") as file:  # noqa: PTH123 - one line of a known file
        return int(file.read().split()[0])


def freeze(broker: Broker, seconds: float) -> threading.Timer:
    """Stop the broker's process for this many seconds."""
    pid = pid_of(broker)
    os.kill(pid, signal.SIGSTOP)
    thaw = threading.Timer(seconds, os.kill, (pid, signal.SIGCONT))
    thaw.start()
    return thaw
