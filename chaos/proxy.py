"""A TCP proxy that injects network faults: one listener per broker and replica, in one event loop."""

from __future__ import annotations

import asyncio
import contextlib
import random
import socket
import struct
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Coroutine

_CHUNK = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # SO_LINGER of zero: close() sends RST


class Way:
    """One direction of a link. Blocked data arrives once it is open again, as after TCP retransmission."""

    def __init__(self) -> None:
        self.delay = 0.0  # seconds, plus or minus ``jitter``
        self.jitter = 0.0
        self.rate = 0.0  # bytes per second; 0: no limit
        self._open = asyncio.Event()
        self._open.set()

    def block(self) -> None:
        """Deliver no data from now on."""
        self._open.clear()

    def clear(self) -> None:
        """Remove all faults."""
        self.delay = self.jitter = self.rate = 0.0
        self._open.set()

    async def pass_through(self, count: int) -> None:
        """Wait until that many bytes may pass."""
        await self._open.wait()
        wait = self.delay + random.uniform(-self.jitter, self.jitter)
        if self.rate:
            wait += count / self.rate
        if wait > 0:
            await asyncio.sleep(wait)
            await self._open.wait()


class Link:
    """The link between one replica and one broker, as a context manager. The replica connects to ``port``."""

    def __init__(self, target: int = 0) -> None:
        self.out, self.back = Way(), Way()  # from the replica to the broker, and from the broker to the replica
        self.target = target  # the broker's own port
        self.refusing = False
        self.passed = 0  # bytes
        self._connections: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.clear()
        self.reset()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def clear(self) -> None:
        """Remove all faults of both directions."""
        self.refusing = False
        self.out.clear()
        self.back.clear()

    def reset(self) -> None:
        """Reset every connection on both sides."""
        for writer in tuple(self._connections):
            _reset(writer)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        try:
            if self.refusing:
                _reset(writer)
                return
            # The stream would log a handler that is cancelled as an error, but the link only ends.
            with contextlib.suppress(asyncio.CancelledError):
                await self._carry(reader, writer)
        finally:
            if task is not None:
                self._tasks.discard(task)

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self.out.pass_through(0)  # a blocked link accepts no connections
        try:
            inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", self.target)
        except OSError:
            _reset(writer)
            return
        pair = {writer, inner_writer}
        self._connections |= pair
        try:
            await _first(self._pump(reader, inner_writer, self.out), self._pump(inner_reader, writer, self.back))
        finally:
            self._connections -= pair
            for one in pair:
                one.close()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: Way) -> None:
        with contextlib.suppress(OSError):
            while data := await reader.read(_CHUNK):
                await way.pass_through(len(data))
                writer.write(data)
                await writer.drain()
                self.passed += len(data)


async def _first(*pumps: Coroutine[None, None, None]) -> None:
    """Run both until one ends, and end the other."""
    tasks = [asyncio.ensure_future(pump) for pump in pumps]
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _reset(writer: asyncio.StreamWriter) -> None:
    raw: socket.socket | None = writer.get_extra_info("socket")
    if raw is not None:
        with contextlib.suppress(OSError):
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
    transport = writer.transport
    transport.abort()
