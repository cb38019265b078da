"""The state topic of a run: cancel requests are sent, and all records are read at the end."""

from __future__ import annotations

import asyncio
import contextlib
import time
import zlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import Producer

from chaos.cluster import STATE_PARTITIONS
from chaos.evidence import StateRecord
from chaos.messages import message
from chaos.reading import whole_topic

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from chaos.evidence import RecordId
    from chaos.requests import Item

CANCEL = "cancel:"
FLUSH_SECONDS = 120.0
_TICK = 0.05


class Canceller:
    """A sender of cancel requests. ``confirmed`` maps each request to the time when the broker had stored it."""

    def __init__(self, bootstrap: str, requests: str, states: str) -> None:
        self.confirmed: dict[RecordId, float] = {}
        self._requests, self._states = requests, states
        settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0}
        settings["max.in.flight"] = 1  # see traffic.py
        self._producer = Producer({**settings, "message.timeout.ms": 0, "linger.ms": 5})

    async def send(self, items: Sequence[Item], stored: Mapping[int, RecordId | None], begin: float) -> None:
        """Send each cancel request at its time after ``begin``, once the broker has stored the request itself."""
        waiting = [(begin + item.at + item.cancel_after, item) for item in items if item.cancel_after is not None]
        waiting.sort(key=lambda entry: entry[0])
        while waiting:
            self._producer.poll(0)
            at, item = waiting[0]
            if time.monotonic() < at or item.sequence not in stored:
                await asyncio.sleep(_TICK)
                continue
            waiting.pop(0)
            if (record := stored[item.sequence]) is not None:
                self._produce(record)
        left = await asyncio.to_thread(self._producer.flush, FLUSH_SECONDS)
        if left:
            raise TimeoutError(f"{left} requests could not be cancelled within {FLUSH_SECONDS:g} s")

    def _produce(self, record: RecordId) -> None:
        partition, offset = record
        origin = {"topic": self._requests, "partition": partition, "offset": offset}
        name = f"{self._requests}/{partition}/{offset}"
        value = message("CancelRequest")(origin=origin, reason="requested")
        value.requested_at.GetCurrentTime()
        where = zlib.crc32(name.encode()) % STATE_PARTITIONS

        def report(error: Any, _record: Any) -> None:
            if error is None:
                self.confirmed[record] = time.monotonic()
            else:
                self._produce(record)

        self._producer.produce(
            self._states, value.SerializeToString(), CANCEL + name, partition=where, on_delivery=report
        )


def read(bootstrap: str, topic: str) -> list[StateRecord]:
    """Return every record of the state topic, partition by partition. Raise TimeoutError if reading takes too long."""
    return [_decode(record) for record in whole_topic(bootstrap, topic, range(STATE_PARTITIONS))]


def _decode(record: Any) -> StateRecord:
    name, value = record.key().decode(), record.value()
    cancel = name.startswith(CANCEL)
    partition, offset = (int(part) for part in name.rsplit("/", 2)[1:])
    at = record.timestamp()[1] / 1000 - time.time() + time.monotonic()
    found = StateRecord((partition, offset), at, cancel=cancel, removed=value is None)
    if cancel or value is None:
        return found
    state = message("TaskState").FromString(value)
    step = 0
    with contextlib.suppress(ValueError):  # it has no value yet
        step = int(state.checkpoint)
    return found._replace(start=(state.epoch, state.started_at.ToNanoseconds()), step=step, state=state.state)
