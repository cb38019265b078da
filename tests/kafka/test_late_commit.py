"""A copy of a commit that reaches the coordinator after a later one, over a connection that the client has closed."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from chaos.cluster import until
from tests.kafka.support.proxied_member import proxied_member

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(150)]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("ordered_commits", [False, True])
def test_a_late_copy_of_a_commit(tmp_path: Path, protocol: str, *, ordered_commits: bool) -> None:
    """It undoes a later commit. With ordered commits its own commit fails, and the member has to join again."""
    asyncio.run(_play(tmp_path, protocol, ordered_commits=ordered_commits))


async def _play(folder: Path, protocol: str, *, ordered_commits: bool) -> None:
    async with proxied_member(folder, protocol, ordered_commits=ordered_commits) as member:
        assert not member.consumer.stale
        held = member.hold_back()
        failure = await member.commit(7)
        assert member.consumer.stale is ordered_commits
        assert (failure is not None) is ordered_commits, failure
        assert await member.commit(9) is None
        assert member.committed() == 9
        held.clear()
        await until(lambda: asyncio.to_thread(lambda: member.committed() == 7), "no copy has arrived", 20.0)
        await asyncio.to_thread(member.consumer.close)
