"""The suite's own sender of requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from chaos import traffic
from chaos.requests import Item
from chaos.traffic import Submitter

if TYPE_CHECKING:
    import pytest


class Message:
    def __init__(self, offset: int | None) -> None:
        self._offset = offset

    def partition(self) -> int:
        return 1

    def offset(self) -> int | None:
        return self._offset


def test_a_request_without_a_reported_offset_is_searched_for_in_the_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client reports the request as delivered, because the broker had it already."""
    monkeypatch.setattr(traffic, "Producer", lambda _settings: None)
    submitter = Submitter("", "requests")
    items = [Item(sequence, 0.0, "spin", b"k", b"v") for sequence in (1, 2)]
    for item, offset in zip(items, (None, 5), strict=True):
        report: Any = submitter._report(item)
        report(None, Message(offset))
    assert submitter.sent == {(1, 5): items[1]}
    assert submitter.stored == {1: None, 2: (1, 5)}
    assert submitter.resent == items[:1]
