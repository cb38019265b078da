"""Requests in, answers and dead letters out. The suite's clients bypass the proxies."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

from confluent_kafka import IsolationLevel, Producer, TopicPartition, admin

from chaos.clocks import unshifted
from chaos.cluster import ANSWER_PARTITIONS
from chaos.evidence import Answer, DeadLetter
from chaos.groups import administrator
from chaos.messages import OUTCOMES, response
from chaos.reading import SILENT_SECONDS, Reading, reading_client
from chaos.requests import LARGEST

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.evidence import RecordId
    from chaos.requests import Item
    from chaos.topics import Topics

FLUSH_SECONDS = 120.0
# Longer than an open transaction can last: its time-out is 60 s by default, and brokers look for expired ones
# every 10 s.
READ_SECONDS = 100.0
ADMIN_SECONDS = 10.0
_TICK = 0.02
_api: Any = admin  # its types are incomplete


class Submitter:
    """A sender of requests, each at its time. ``sent`` maps the place where the broker stored it to the request."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.sent: dict[RecordId, Item] = {}
        self.sent_at: dict[RecordId, float] = {}  # the time of the broker's confirmation
        self.stored: dict[int, RecordId | None] = {}  # by the sequence of the request in the plan; None: place unknown
        self.resent: list[Item] = []  # sent again after a delivery failure: each may be in the topic twice
        self._topic = topic
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        settings["max.in.flight"] = 1  # otherwise the client can report a request as sent that is not in the topic
        settings |= {"partitioner": "murmur2_random", "message.timeout.ms": 0, "message.max.bytes": LARGEST}
        self._producer = Producer({**settings, "linger.ms": 5, "topic.metadata.refresh.interval.ms": 5_000})

    async def send(self, items: Sequence[Item], begin: float) -> None:
        """Send all requests, each at its time after ``begin``. Return when the broker has confirmed them all."""
        for item in items:
            while time.monotonic() < begin + item.at:
                self._producer.poll(0)
                await asyncio.sleep(_TICK)
            self._produce(item)
        left = await asyncio.to_thread(self._producer.flush, FLUSH_SECONDS)
        if left:
            raise TimeoutError(f"{left} requests could not be sent within {FLUSH_SECONDS:g} s")

    def add(self, record: RecordId, item: Item, planned: int) -> None:
        """Add a request that the broker has stored. ``planned`` is its sequence in the plan."""
        self.sent[record] = item
        self.stored[planned] = record
        self.sent_at[record] = time.monotonic()

    def _produce(self, item: Item) -> None:
        deadline = str(time.time() + item.lifetime).encode()
        headers: dict[str, str | bytes | None] = {"x-deadline": deadline} if item.lifetime else {}
        headers |= {"x-timeout": str(item.timeout)} if item.timeout else {}
        self._producer.produce(self._topic, item.value, item.key, on_delivery=self._report(item), headers=headers)

    def _report(self, item: Item) -> Any:
        def report(error: Any, record: Any) -> None:
            if error is None and record.offset() is None:  # a repeated record; ``copies`` will find it in the topic
                self.resent.append(item)
                self.stored[item.sequence] = None
            elif error is None:
                self.add((record.partition(), record.offset()), item, item.sequence)
            elif error.fatal():
                raise RuntimeError(f"a request was not sent: {error}")
            else:
                self.resent.append(item)
                self._produce(item)  # a broker with a full disk refuses it "for an unknown reason"

        return report


class Reader(Reading):
    """A reader of committed answers and dead letters in a thread. Use it as a context manager."""

    def __init__(self, bootstrap: str, topics: Topics) -> None:
        super().__init__()
        self.answers: list[Answer] = []
        self.dead_letters: list[DeadLetter] = []
        self.answered: set[RecordId] = set()
        self.unreadable = 0
        self._bootstrap = bootstrap
        self._dead_letter_topic = topics.dead_letters
        self._consumer, self._received_at = reading_client(bootstrap), time.monotonic()
        names = (topics.answers, topics.dead_letters)
        self._partitions = [TopicPartition(name, n, 0) for name in names for n in range(ANSWER_PARTITIONS)]
        self._positions = self._partitions  # those of the previous client
        self._consumer.assign(self._partitions)
        self._finish, self._finished = threading.Event(), threading.Event()
        self._obstacle = "the end of the answers could not be found"

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._consumer.close()

    def _read(self) -> None:
        while not self._over.is_set():
            self._take()
            if self._finish.is_set() and not self._finished.is_set():
                self._obstacle = self._read_all()  # in this thread, because two threads of one client block each other
                self._finished.set()

    def _take(self) -> None:
        record: Any  # the types allow for records without an offset
        if time.monotonic() - self._received_at > SILENT_SECONDS:
            self._renew()
        for record in self._consumer.consume(1000, 0.2):
            if record.error() is None:
                self._received_at = time.monotonic()
                if record.topic() == self._dead_letter_topic:
                    self._add_dead_letter(record)
                else:
                    self._add_answer(record)

    def _renew(self) -> None:
        """Continue with a new client: after outages, old clients stayed disconnected."""
        self._positions = self._position()
        self._consumer.close()
        self._consumer, self._received_at = reading_client(self._bootstrap), time.monotonic()
        self._consumer.assign(self._positions)

    def _position(self) -> list[TopicPartition]:
        """Return the positions behind the ends of transactions. A new client does not know what the last one read."""
        now = self._consumer.position(self._partitions)
        rows = zip(self._positions, now, strict=True)
        return [TopicPartition(at.topic, at.partition, max(before.offset, at.offset)) for before, at in rows]

    def _add_answer(self, record: Any) -> None:
        try:
            found = response(record.value())
        except Exception:  # noqa: BLE001 - no error of any kind is an answer
            self.unreadable += 1
            return
        origin = found.origin
        request = (origin.partition, origin.offset)
        stamp, now = record.timestamp()[1] / 1000, time.time()
        true = unshifted(stamp, now)
        at = true - now + time.monotonic()
        outcome = OUTCOMES.get(found.outcome, str(found.outcome))
        replica = found.worker.rpartition("-")[0]  # r0 of the process r0-1
        self.answers.append(
            Answer(origin.topic, request, outcome, found.sequence, record.key(), at, replica, stamp < true)
        )
        self.answered.add(request)

    def _add_dead_letter(self, record: Any) -> None:
        headers = dict(record.headers() or ())
        try:
            request = (int(headers["x-origin-partition"]), int(headers["x-origin-offset"]))
        except (KeyError, ValueError):
            self.unreadable += 1
            return
        self.dead_letters.append(DeadLetter(request, record.key(), record.value()))

    async def read_all(self) -> str:
        """Read up to the current end, open transactions included. Return what prevents it, or an empty string."""
        self._finish.set()
        await asyncio.to_thread(self._finished.wait, 2 * READ_SECONDS)
        return self._obstacle

    def _read_all(self) -> str:
        deadline = time.monotonic() + READ_SECONDS
        ends: dict[tuple[str, int], int] = {}
        while time.monotonic() < deadline and not ends:
            self._take()
            with contextlib.suppress(Exception):  # a broker may need some more time
                ends = uncommitted_ends(self._bootstrap, self._partitions)
        while True:
            self._take()
            behind = [at for at in self._position() if at.offset < ends.get((at.topic, at.partition), 0)]
            if ends and not behind:
                return ""
            if time.monotonic() > deadline:
                where = ", ".join(f"{at.topic}[{at.partition}] from {at.offset} on" for at in behind)
                return f"answers that cannot be read, in a transaction that is still open: {where}"


def uncommitted_ends(bootstrap: str, partitions: Sequence[TopicPartition]) -> dict[tuple[str, int], int]:
    """Return the end of each partition, records of open transactions included.

    A read_committed consumer sees the last stable offset instead. It would consider everything behind an open
    transaction of a killed process as unwritten.
    """
    wanted = dict.fromkeys(partitions, _api.OffsetSpec.latest())
    with administrator(bootstrap) as client:
        futures = client.list_offsets(
            wanted, isolation_level=IsolationLevel.READ_UNCOMMITTED, request_timeout=ADMIN_SECONDS
        )
        return {(at.topic, at.partition): future.result(ADMIN_SECONDS).offset for at, future in futures.items()}
