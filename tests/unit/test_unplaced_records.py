"""The client reports delivered records without offsets: it sent them twice, and the broker had them already."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest

from tests.unit.test_replay import dead_letter
from worker.cli.replay import Plan, Replay
from worker.cli.sending import Sent
from worker.kafka.client_producer import RequestProducer
from worker.kafka.sender import UNPLACED, Outgoing, Sender, deliver

if TYPE_CHECKING:
    from collections.abc import Callable


class Repeated:
    """A delivered message whose offset the broker did not report."""

    def partition(self) -> int:
        return 1

    def offset(self) -> None:
        return None

    def timestamp(self) -> tuple[int, int]:
        return (0, -1)


class RepeatingProducer:
    """A producer that confirms each record immediately, without an offset."""

    def __init__(self, _properties: Any) -> None:
        pass

    def produce(self, *_record: Any, on_delivery: Callable[[None, Repeated], None], **_more: Any) -> None:
        on_delivery(None, Repeated())

    def poll(self, _timeout: float) -> int:
        return 0

    def flush(self, _timeout: float) -> int:
        return 0


@pytest.fixture(autouse=True)
def client(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(confluent_kafka, "Producer", RepeatingProducer)


def test_the_client_fails_a_request_without_an_offset() -> None:
    """The answer could never be found by an id without an offset."""
    confirmed: list[Any] = []
    failed: list[str] = []
    producer = RequestProducer({}, 1.0)

    def on_confirmation(*place: Any) -> None:
        confirmed.append(place)

    sent = producer.send("requests", b"k", b"v", (), confirmed=on_confirmation, failed=failed.append)
    assert (sent, confirmed, failed) == (True, [], [UNPLACED])


def test_a_delivery_of_the_tools_has_no_offset() -> None:
    (delivery,) = deliver(Sender({}), [Outgoing("requests", b"k", b"v")])
    assert (delivery.partition.number, delivery.offset, delivery.failure) == (1, None, None)


def test_submit_does_not_wait_for_the_answer_to_a_request_without_an_offset() -> None:
    sent = Sent()
    (delivery,) = deliver(Sender({}), [Outgoing("requests", b"k", b"v")])
    sent.on_delivery(7, delivery)
    assert (sent.confirmed, list(sent.tally.unanswered())) == (0, [])
    assert sent.problems() == [f"not confirmed ({UNPLACED}): sequences 7"]


class RecordingJournal:
    """A journal that keeps its records in memory."""

    def __init__(self) -> None:
        self.replayed: dict[str, str] = {}
        self.open = False

    def begin(self, *_: Any) -> None:
        self.open = True

    def record(self, _sender: Any, replayed: dict[str, str]) -> None:
        self.replayed |= replayed

    def finish(self, _sender: Any) -> None:
        self.open = False


class SilentMeter:
    def show(self, _count: int) -> None:
        pass


def test_a_replay_of_a_request_without_an_offset_stays_open() -> None:
    """The next replay then looks for the request in the topic."""
    journal: Any = RecordingJournal()
    one = dead_letter()
    replay = Replay(Sender({}), journal)
    replay.run([one], Plan(chosen={one.mark}, topics={"requests"}, unrecorded=()), SilentMeter(), [])  # type: ignore[arg-type]
    assert (journal.replayed, journal.open) == ({}, True)
    assert replay.failed == {one.place: UNPLACED}
