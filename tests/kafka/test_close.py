"""A member that leaves while it cannot reach its coordinator."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING

import pytest

from chaos.cluster import until
from tests.kafka.support.proxied_member import proxied_member
from worker.kafka import consumer
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(90)]

LIMIT = 3.0  # seconds, instead of ``CLOSE_SECONDS``


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_close_does_not_wait_without_end(tmp_path: Path, protocol: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last commit never gets its reply. The member id remains, so that the supervisor can remove the member."""
    monkeypatch.setattr(consumer, "CLOSE_SECONDS", LIMIT)
    asyncio.run(_play(tmp_path, protocol))


async def _play(folder: Path, protocol: str) -> None:
    async with proxied_member(folder, protocol) as member:
        member_id = member.consumer.member_id
        member.recorder.answers.clear()
        member.block()
        await asyncio.to_thread(member.consumer.commit, {member.partition: Position(7)})
        began = time.monotonic()
        await asyncio.to_thread(member.consumer.close)
        assert time.monotonic() - began < LIMIT + 2.0
        assert member.consumer.member_id == member_id != ""
        member.unblock()
        await until(lambda: all(thread.name != "close" for thread in threading.enumerate()), "it never closes", 20.0)
        assert member.recorder.answers == [], "a callback came after the close"
