"""Requests submitted through the client, as the suite records them and their futures."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING, Any, Self

import pytest

import worker
from chaos import client_requests, plan
from chaos.client_requests import KIND, Clients
from chaos.evidence import Resolved
from chaos.messages import payload_of, sequence_of
from chaos.options import Options
from worker.client import DeliveryError, TaskFuture
from worker.errors import BrokerError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.evidence import RecordId
    from chaos.requests import Item

ITEMS = [one for one in plan.draw(Options(3, mix="requests", features="client"), rights=()).items if one.kind == KIND]


class FakeSubmitter:
    def __init__(self) -> None:
        self.added: dict[RecordId, tuple[Item, int]] = {}
        self.resent: list[Item] = []

    def add(self, record: RecordId, item: Item, planned: int) -> None:
        self.added[record] = item, planned


class FakeClient:
    """A client that confirms every request but the second. Every future resolves to the token of its payload."""

    payloads: list[str]

    def __init__(self, _environment: object) -> None:
        self.payloads = []

    def submit(self, payload: str, key: bytes) -> TaskFuture:
        assert key.startswith(b"r")
        self.payloads.append(payload)
        future, number = TaskFuture(), len(self.payloads)
        if number == 2:
            future.delivered.set_exception(DeliveryError("not confirmed"))
            return future
        future.delivered.set_result(f"requests~{number % 3}~{number}~1700000000000")
        future.answer(json.loads(payload)["token"].encode())
        return future

    def resume(self, ids: Iterable[str]) -> list[TaskFuture]:
        return [self._found(one) for one in ids]

    def _found(self, task_id: str) -> TaskFuture:
        future = TaskFuture()
        if not task_id.startswith("requests~0~"):
            future.answer(worker.TaskFailed("EXPIRED", "", "", None))  # type: ignore[arg-type]
        return future

    def close(self, timeout: float = 0.0) -> None:
        assert timeout >= 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> tuple[Clients, FakeSubmitter]:
    monkeypatch.setattr(worker, "Client", FakeClient, raising=False)
    monkeypatch.setattr(client_requests, "RESOLVE_SECONDS", 0.1)
    submitter: Any = FakeSubmitter()
    clients = Clients({}, submitter)
    clients.open()
    asyncio.run(clients.send(ITEMS[:6], time.monotonic() - 1000))
    return clients, submitter


def test_confirmed_requests_are_recorded_with_the_sequence_of_the_client(sent: tuple[Clients, FakeSubmitter]) -> None:
    _, submitter = sent
    assert len(submitter.added) == 5
    for (_, offset), (item, planned) in submitter.added.items():
        assert item.sequence == sequence_of(item.value or b"") == offset
        assert planned == ITEMS[offset - 1].sequence
        assert payload_of(item.value or b"") == payload_of(ITEMS[offset - 1].value or b"")
    assert [one.sequence for one in submitter.resent] == [2]  # it may be in the topic


def test_futures_are_recorded_with_their_outcomes_and_found_again_by_id(sent: tuple[Clients, FakeSubmitter]) -> None:
    clients, submitter = sent
    resolved = clients.resolved(submitter.added.keys())
    assert resolved.keys() == submitter.added.keys()
    assert all(one.outcome == "OK" and one.value == one.wanted for one in resolved.values())
    again = clients.found_again(submitter.added.keys())
    outcomes = {record: one.outcome for record, one in again.items()}
    assert outcomes == {record: "" if record[0] == 0 else "EXPIRED" for record in submitter.added}
    assert isinstance(next(iter(again.values())), Resolved)


class FailingClient(FakeClient):
    """A client that fails at its fourth request if it is the first one. The second one cannot be created."""

    made = 0

    def __init__(self, environment: object) -> None:
        super().__init__(environment)
        FailingClient.made += 1
        self._first = FailingClient.made == 1
        if FailingClient.made == 2:
            raise BrokerError("Kafka cannot be reached")

    def submit(self, payload: str, key: bytes) -> TaskFuture:
        if self._first and len(self.payloads) == 3:
            raise BrokerError("the client has failed, make a new one")
        future = super().submit(payload, key)
        if not self._first and future.delivered.exception() is None:
            partition, offset = future.delivered.result().split("~")[1:3]
            later = TaskFuture()
            later.delivered.set_result(f"requests~{partition}~{int(offset) + 100}~1700000000000")
            later.answer(future.result())
            return later
        return future


def test_a_client_that_has_failed_is_replaced_and_its_futures_still_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the suite, seed 236, the producer of a client failed in an outage, and the run ended because of that."""
    monkeypatch.setattr(worker, "Client", FailingClient, raising=False)
    monkeypatch.setattr(time, "sleep", lambda _seconds: None)
    submitter: Any = FakeSubmitter()
    clients = Clients({}, submitter)
    clients.open()
    asyncio.run(clients.send(ITEMS[:6], time.monotonic() - 1000))
    clients.close()
    assert FailingClient.made == 3
    assert sorted((offset, item.sequence) for (_, offset), (item, _) in submitter.added.items()) == [
        *[(1, 1), (3, 3)],
        *[(101, 1), (103, 3)],
    ]
    assert len(clients.resolved(submitter.added.keys())) == 4
