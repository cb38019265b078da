"""Requests in, answers and dead letters out: what the suite itself produces and consumes, past all links."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any, Self

from confluent_kafka import Consumer, Producer, TopicPartition

from chaos.cluster import ANSWER_PARTITIONS
from chaos.ledger import Answer, Letter
from chaos.load import LARGEST
from tests.kafka.support.messages import OUTCOMES, message

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.cluster import Topics
    from chaos.ledger import Place
    from chaos.load import Item

FLUSH_SECONDS = 120.0
READ_SECONDS = 60.0
SILENT_SECONDS = 10.0  # without a record, until the reader takes a new client
_TICK = 0.02
_QUIET = {"log_level": 0, "topic.metadata.refresh.interval.ms": 5_000}


class Submitter:
    """Sends requests when it is their time and keeps where the broker has put them."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent: dict[Place, Item] = {}
        self.again: list[Item] = []  # those sent again after a failure, so that each may be in the topic twice
        self._topic = topic
        settings: dict[str, Any] = {**_QUIET, "bootstrap.servers": bootstrap, "enable.idempotence": True}
        settings |= {"partitioner": "murmur2_random", "message.timeout.ms": 0, "message.max.bytes": LARGEST}
        self._producer = Producer({**settings, "linger.ms": 5})

    async def send(self, items: Sequence[Item], begin: float) -> None:
        """Send them all, each at its time after ``begin``; returns when every one is confirmed."""
        for item in items:
            while time.monotonic() < begin + item.at:
                self._producer.poll(0)
                await asyncio.sleep(_TICK)
            self._produce(item)
        left = await asyncio.to_thread(self._producer.flush, FLUSH_SECONDS)
        if left:
            raise TimeoutError(f"{left} requests could not be sent within {FLUSH_SECONDS:g} s")

    def _produce(self, item: Item) -> None:
        deadline = str(time.time() + item.lifetime).encode()
        headers: dict[str, str | bytes | None] = {"x-deadline": deadline} if item.lifetime else {}
        self._producer.produce(self._topic, item.value, item.key, on_delivery=self._report(item), headers=headers)

    def _report(self, item: Item) -> Any:
        def report(error: Any, record: Any) -> None:
            if error is None:
                self.sent[record.partition(), record.offset()] = item
            elif error.fatal():
                raise RuntimeError(f"a request was not sent: {error}")
            else:
                self.again.append(item)
                self._produce(item)  # a broker without room on its disk refuses it "for an unknown reason"

        return report


class Reader:
    """Reads answers and dead letters, committed ones only, in a thread of its own. Use it as a context."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        self.answers: list[Answer] = []
        self.letters: list[Letter] = []
        self.answered: set[Place] = set()
        self.unreadable = 0
        self._letters = topics.letters
        settings: dict[str, Any] = {**_QUIET, "bootstrap.servers": bootstrap, "group.id": f"reader-{uuid.uuid4().hex}"}
        settings |= {"isolation.level": "read_committed", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        self._settings = {**settings, "auto.offset.reset": "earliest", "message.max.bytes": 20_000_000}
        self._consumer, self._heard_at = Consumer(self._settings), time.monotonic()
        names = (topics.answers, topics.letters)
        self._partitions = [TopicPartition(name, n, 0) for name in names for n in range(ANSWER_PARTITIONS)]
        self._positions = self._partitions  # as of the client before
        self._consumer.assign(self._partitions)
        self._over, self._asked, self._told = threading.Event(), threading.Event(), threading.Event()
        self._obstacle = "the end of the answers could not be found"
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _read(self) -> None:
        while not self._over.is_set():
            self._take()
            if self._asked.is_set() and not self._told.is_set():
                self._obstacle = self._read_all()  # here: two threads at one client shut each other out
                self._told.set()

    def _take(self) -> None:
        record: Any  # the types allow for records without a place
        if time.monotonic() - self._heard_at > SILENT_SECONDS:
            self._renew()
        for record in self._consumer.consume(1000, 0.2):
            if record.error() is None:
                self._heard_at = time.monotonic()
                self._letter(record) if record.topic() == self._letters else self._answer(record)

    def _renew(self) -> None:
        """Go on with a new client: after outages one was seen that heard nothing of a broker that was there."""
        self._positions = self._position()
        self._consumer.close()
        self._consumer, self._heard_at = Consumer(self._settings), time.monotonic()
        self._consumer.assign(self._positions)

    def _position(self) -> list[TopicPartition]:
        """Where it is, ends of transactions included; a client knows nothing of what another one has read."""
        now = self._consumer.position(self._partitions)
        rows = zip(self._positions, now, strict=True)
        return [TopicPartition(at.topic, at.partition, max(before.offset, at.offset)) for before, at in rows]

    def _answer(self, record: Any) -> None:
        try:
            response = message("Response").FromString(record.value())
        except Exception:  # noqa: BLE001 - whatever it is, it is no answer
            self.unreadable += 1
            return
        origin = response.origin
        place = (origin.partition, origin.offset)
        at = record.timestamp()[1] / 1000 - time.time() + time.monotonic()
        outcome = OUTCOMES.get(response.outcome, str(response.outcome))
        self.answers.append(Answer(origin.topic, place, outcome, response.sequence, record.key(), at))
        self.answered.add(place)

    def _letter(self, record: Any) -> None:
        headers = dict(record.headers() or ())
        try:
            place = (int(headers["x-origin-partition"]), int(headers["x-origin-offset"]))
        except (KeyError, ValueError):
            self.unreadable += 1
            return
        self.letters.append(Letter(place, record.key(), record.value()))

    async def read_all(self) -> str:
        """Read up to what is the end now; returns what stands in the way, if anything does."""
        self._asked.set()
        await asyncio.to_thread(self._told.wait, 2 * READ_SECONDS)
        return self._obstacle

    def _read_all(self) -> str:
        deadline = time.monotonic() + READ_SECONDS
        ends: dict[tuple[str, int], int] = {}
        while time.monotonic() < deadline and len(ends) < len(self._partitions):
            self._take()
            with contextlib.suppress(Exception):  # a broker may need another moment
                for at in self._partitions:
                    ends[at.topic, at.partition] = self._consumer.get_watermark_offsets(at, 10)[1]
        while True:
            self._take()
            behind = [at for at in self._position() if at.offset < ends.get((at.topic, at.partition), 0)]
            if ends and not behind:
                return ""
            if time.monotonic() > deadline:
                where = ", ".join(f"{at.topic}[{at.partition}] from {at.offset} on" for at in behind)
                return f"answers that cannot be read, in a transaction that is still open: {where}"
