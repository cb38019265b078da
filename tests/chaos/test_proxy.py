"""The proxy does to connections what networks do."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from chaos.proxy import Link

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    Client = tuple[asyncio.StreamReader, asyncio.StreamWriter]
    Scenario = Callable[[Link, Client], Awaitable[None]]

SOON = 5.0  # seconds; only a failing test waits this long
NOTHING = 0.2  # seconds without any data


async def _echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(65536):
        writer.write(data)
    writer.close()


@asynccontextmanager
async def connected() -> AsyncIterator[tuple[Link, Client]]:
    """Yield a link to a server that sends all data back, and a connection through the link."""
    server = await asyncio.start_server(_echo, "127.0.0.1", 0)
    async with Link(server.sockets[0].getsockname()[1]) as link:
        client = await asyncio.open_connection("127.0.0.1", link.port)
        yield link, client
        client[1].close()
    server.close()


async def exchange(client: Client, data: bytes, seconds: float = SOON) -> bytes:
    reader, writer = client
    writer.write(data)
    return await asyncio.wait_for(reader.readexactly(len(data)), seconds)


async def passes_everything_on(link: Link, client: Client) -> None:
    assert await exchange(client, b"x" * 300_000) == b"x" * 300_000
    assert link.passed == 600_000


async def a_cut_way_is_silent_and_delivers_when_it_is_open_again(link: Link, client: Client) -> None:
    for way in (link.out, link.back):
        way.block()
        with pytest.raises(TimeoutError):
            await exchange(client, b"a", NOTHING)
        way.clear()
        assert await asyncio.wait_for(client[0].readexactly(1), SOON) == b"a"


async def through_a_cut_nobody_connects_to_the_other_side(link: Link, client: Client) -> None:
    link.out.block()
    other = await asyncio.open_connection("127.0.0.1", link.port)
    with pytest.raises(TimeoutError):
        await exchange(other, b"b", NOTHING)
    link.clear()
    assert await asyncio.wait_for(other[0].readexactly(1), SOON) == b"b"
    other[1].close()


async def a_delay_takes_its_time_each_way(link: Link, client: Client) -> None:
    link.out.delay = link.back.delay = 0.15
    began = time.monotonic()
    await exchange(client, b"c")
    assert time.monotonic() - began >= 0.3


async def a_rate_is_kept(link: Link, client: Client) -> None:
    link.out.rate = 100_000
    began = time.monotonic()
    await exchange(client, b"d" * 30_000)
    assert time.monotonic() - began >= 0.3


async def a_reset_is_one_and_refusing_goes_on(link: Link, client: Client) -> None:
    await exchange(client, b"e")
    link.refusing = True
    link.reset()
    with pytest.raises(ConnectionResetError):
        await asyncio.wait_for(client[0].readexactly(1), SOON)
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError, BrokenPipeError)):
        await exchange(await asyncio.open_connection("127.0.0.1", link.port), b"f")
    link.clear()
    assert await exchange(await asyncio.open_connection("127.0.0.1", link.port), b"g") == b"g"


async def nobody_behind_it_is_a_reset(link: Link, client: Client) -> None:
    link.target = 1
    with pytest.raises((ConnectionResetError, asyncio.IncompleteReadError, BrokenPipeError)):
        await exchange(await asyncio.open_connection("127.0.0.1", link.port), b"h")


SCENARIOS: list[Scenario] = [
    passes_everything_on,
    a_cut_way_is_silent_and_delivers_when_it_is_open_again,
    through_a_cut_nobody_connects_to_the_other_side,
    a_delay_takes_its_time_each_way,
    a_rate_is_kept,
    a_reset_is_one_and_refusing_goes_on,
    nobody_behind_it_is_a_reset,
]


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("scenario", SCENARIOS, ids=[scenario.__name__ for scenario in SCENARIOS])
def test_a_link_treats_connections_as_a_network_does(scenario: Scenario) -> None:
    async def play() -> None:
        async with connected() as (link, client):
            await scenario(link, client)

    asyncio.run(play())
