"""The transactor with a stand-in for the client."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import confluent_kafka as ck
import pytest

from worker.core.model import Partition
from worker.kafka import transactional
from worker.kafka.ports import Handshake, Message, Position, Transaction
from worker.kafka.transactional import ConfluentTransactor

if TYPE_CHECKING:
    from collections.abc import Callable

PLACE = Partition("requests", 0)


class Producer:
    """A producer whose calls succeed."""

    made = 0

    def __init__(self, properties: dict[str, Any]) -> None:
        Producer.made += 1
        self.on_error = properties["error_cb"]

    def poll(self, _seconds: float) -> int:
        return 0

    def flush(self, _seconds: float) -> int:
        return 0

    def purge(self, *, blocking: bool) -> None: ...

    def init_transactions(self, _seconds: float) -> None: ...

    def begin_transaction(self) -> None: ...

    def produce(self, *_: Any, **__: Any) -> None: ...

    def send_offsets_to_transaction(self, *_: Any) -> None: ...

    def commit_transaction(self, _seconds: float) -> None: ...

    def abort_transaction(self, _seconds: float) -> None: ...


class Consumer:
    """A consumer of a group that has committed nothing."""

    def __init__(self, _properties: dict[str, Any]) -> None: ...

    def consumer_group_metadata(self) -> object:
        return object()

    def committed(self, partitions: list[ck.TopicPartition], _seconds: float) -> list[ck.TopicPartition]:
        return [ck.TopicPartition(place.topic, place.partition, ck.OFFSET_INVALID) for place in partitions]

    def close(self) -> None: ...


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Callable[[type[Producer]], ConfluentTransactor]:
    def made(kind: type[Producer]) -> ConfluentTransactor:
        monkeypatch.setattr(ck, "Producer", kind)
        monkeypatch.setattr(ck, "Consumer", Consumer)
        Producer.made = 0
        return ConfluentTransactor({"transactional.id": "t", "transaction.timeout.ms": 300}, checker={"group.id": "g"})

    return made


@pytest.mark.parametrize("disturbed", [False, True])
def test_a_disturbed_abort_of_a_superseded_answer_gets_a_new_epoch(
    make: Callable[[type[Producer]], ConfluentTransactor], disturbed: bool
) -> None:
    """A late copy of the abort would end the next transaction of the same epoch."""

    class Disturbed(Producer):
        def abort_transaction(self, _seconds: float) -> None:
            if disturbed:
                self.on_error(ck.KafkaError(ck.KafkaError._TRANSPORT))

    transactor = make(Disturbed)
    handshake = Handshake("g.detached", PLACE, Position(1, "mark"), lambda _: False)
    assert transactor.commit(Transaction((), {}, None, handshake)).superseded
    transactor.commit(Transaction((), {PLACE: Position(1)}, object()))
    assert Producer.made == (2 if disturbed else 1)


@pytest.mark.parametrize("one_by_one", [False, True])
def test_messages_that_the_client_never_sends_end_the_transaction(
    make: Callable[[type[Producer]], ConfluentTransactor], monkeypatch: pytest.MonkeyPatch, one_by_one: bool
) -> None:
    """A client that has lost all brokers never sends anything. Its transaction is repeated, with another client."""
    monkeypatch.setattr(transactional, "GIVE_UP_SECONDS", 0.0)

    class Stranded(Producer):
        def produce(self, *_: Any, **__: Any) -> None:
            if not one_by_one:
                raise BufferError

        def flush(self, seconds: float) -> int:
            time.sleep(seconds)
            return 1

    began = time.monotonic()
    message = Message("answers", None, b"")
    ended = make(Stranded).commit(Transaction([message], {PLACE: Position(1)}, object(), one_by_one=one_by_one))
    assert time.monotonic() - began < 5.0
    assert not ended.committed
    assert ended.failure is not None
    assert ended.failure.code == "_TIMED_OUT"
