"""A member that joins again with a new client."""

from __future__ import annotations

import threading
from unittest.mock import MagicMock

import pytest

from worker.errors import WorkerError
from worker.kafka import consumer as consumer_module
from worker.kafka.consumer import ConfluentConsumer


def test_a_client_that_does_not_close_ends_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client without the address of any broker never closes, and the watchdog would need a minute."""
    monkeypatch.setattr(consumer_module, "CLOSE_SECONDS", 0.1)
    properties = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    member = ConfluentConsumer({"consumer": properties, "classic": properties})
    endless = threading.Event()
    member._client.close()
    member._client = MagicMock(close=endless.wait, memberid=lambda: "member-1")
    with pytest.raises(WorkerError, match="could not leave the group"):
        member._begin_again()
    member._client.memberid = endless.wait
    assert member.member_id == "member-1", "for the supervisor, which removes the member"
    endless.set()


def test_a_process_that_cannot_make_another_client_still_reports_its_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """It asks for the member id, which a closed client does not have."""
    properties = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    member = ConfluentConsumer({"consumer": properties})
    monkeypatch.setattr(member, "_make", MagicMock(side_effect=OSError("no threads")))
    with pytest.raises(OSError, match="no threads"):
        member._begin_again()
    assert member.member_id == ""
