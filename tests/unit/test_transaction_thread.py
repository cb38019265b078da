"""A transactional client whose call does not return."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING
from unittest.mock import MagicMock

from worker.kafka.ports import Ended
from worker.process import transaction_thread
from worker.process.transaction_thread import TransactionThread

if TYPE_CHECKING:
    import pytest


def test_a_client_that_hangs_is_closed_before_its_successor_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the old client could fence the new one when its call returns after all."""
    monkeypatch.setattr(transaction_thread, "HUNG_SECONDS", 0.05)
    released = threading.Event()
    events: list[str] = []
    hanging, second = MagicMock(called_at=time.monotonic()), MagicMock(called_at=time.monotonic())
    hanging.commit.side_effect = lambda _transaction: released.wait(10)
    hanging.close.side_effect = lambda: events.append("closed")
    second.find_out.return_value = Ended(committed=True)
    clients = iter([hanging, second])

    def make() -> MagicMock:
        client = next(clients)
        events.append("first" if client is hanging else "second")
        return client

    thread = TransactionThread(make, lambda: None)
    thread.send(MagicMock())
    deadline = time.monotonic() + 10
    while (ended := thread.ended(0.01)) is None and time.monotonic() < deadline:
        pass
    released.set()
    assert ended == Ended(committed=True)
    assert events == ["first", "closed", "second"]
