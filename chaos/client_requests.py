"""Requests that are submitted through ``worker.Client``, and what its futures resolve to."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from typing import TYPE_CHECKING, Any, NamedTuple

import worker
from chaos.evidence import Resolved
from chaos.messages import json_request, payload_of, request
from chaos.requests import token_of
from chaos.traffic import FLUSH_SECONDS
from worker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from chaos.evidence import RecordId
    from chaos.requests import Item
    from chaos.traffic import Submitter

KIND = "echo"
REOPEN_SECONDS = 60.0  # for a new client, longer than any outage
RESOLVE_SECONDS = 60.0  # seconds for futures whose requests are answered
_TICK = 0.02


class _Entry(NamedTuple):
    item: Item  # with the sequence that the client gave it
    planned: int  # its sequence in the plan
    future: Any


class Clients:
    """A sender of requests through a client, which connects as the first replica does: faults hit it as well.

    Confirmed requests are added to those of ``submitter``.
    """

    def __init__(self, environment: Mapping[str, str], submitter: Submitter) -> None:
        self._environment, self._submitter = dict(environment), submitter
        self._entries: dict[RecordId, _Entry] = {}
        self._ids: dict[RecordId, str] = {}
        self._encode: Callable[[int, str], bytes] = (
            json_request if environment.get("WORKER_FORMAT") == "json" else request
        )
        self._clients: list[Any] = []  # the last one submits, the others have failed
        self._count = 0

    def open(self) -> None:
        """Connect. Not in the thread of the event loop, which carries the connection."""
        self._clients.append(worker.Client(self._environment))
        self._count = 0

    def close(self) -> None:
        """End all clients."""
        for client in self._clients:
            client.close(timeout=1.0)

    async def send(self, items: Sequence[Item], begin: float) -> None:
        """Submit each request at its time after ``begin``. Return when each is confirmed or has failed."""
        delivered = []
        for item in items:
            await asyncio.sleep(max(0.0, begin + item.at - time.monotonic()))
            try:
                entry = self._submit(item)
            except BrokerError:  # an outage has ended its producer, so do as it says and make a new one
                await asyncio.to_thread(self._reopen)
                entry = self._submit(item)
            delivered.append(entry.future.delivered)
        _, left = await asyncio.to_thread(concurrent.futures.wait, delivered, FLUSH_SECONDS)
        if left:
            raise TimeoutError(f"{len(left)} requests of the client are not confirmed within {FLUSH_SECONDS:g} s")

    def _reopen(self) -> None:
        """Open another client. The futures of the one before still resolve. Raise BrokerError after a minute."""
        deadline = time.monotonic() + REOPEN_SECONDS
        while True:
            try:
                return self.open()
            except BrokerError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(1.0)

    def _submit(self, item: Item) -> _Entry:
        payload = payload_of(item.value or b"")
        self._count += 1  # as the client counts
        future = self._clients[-1].submit(payload, key=item.key)
        entry = _Entry(
            item._replace(sequence=self._count, value=self._encode(self._count, payload)), item.sequence, future
        )
        future.delivered.add_done_callback(lambda done: self._confirmed(entry, done))
        return entry

    def _confirmed(self, entry: _Entry, done: concurrent.futures.Future[str]) -> None:
        """Add a request that the broker has confirmed. Runs in a thread of the client."""
        if done.exception() is not None:
            self._submitter.resent.append(entry.item)  # it may be in the topic, or not
            return
        _, partition, offset, _ = done.result().split("~")
        record = int(partition), int(offset)
        self._entries[record], self._ids[record] = entry, done.result()
        self._submitter.add(record, entry.item, entry.planned)

    def resolved(self, answered: Collection[RecordId]) -> dict[RecordId, Resolved]:
        """Return what each future resolved to. Wait for those of answered requests."""
        return self._wait({record: entry.future for record, entry in self._entries.items()}, answered)

    def found_again(self, answered: Collection[RecordId]) -> dict[RecordId, Resolved]:
        """Return what a new client finds by the ids of all requests."""
        with worker.Client(self._environment) as client:
            futures = dict(zip(self._ids, client.resume(self._ids.values()), strict=True))
            return self._wait(futures, answered)

    def _wait(self, futures: Mapping[RecordId, Any], answered: Collection[RecordId]) -> dict[RecordId, Resolved]:
        concurrent.futures.wait([futures[record] for record in futures.keys() & answered], RESOLVE_SECONDS)
        return {
            record: _resolution(future, token_of(self._entries[record].planned)) for record, future in futures.items()
        }


def _resolution(future: Any, wanted: str) -> Resolved:
    if not future.done():
        return Resolved("", "", wanted)
    error = future.exception()
    if error is None:
        return Resolved("OK", future.result().decode(errors="replace"), wanted)
    return Resolved(error.outcome if isinstance(error, worker.TaskFailed) else repr(error), "", wanted)
