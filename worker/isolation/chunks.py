"""The child's reader for chunks of tasks from its socket."""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING, NamedTuple

from worker.isolation.frames import CHUNK

if TYPE_CHECKING:
    from worker.isolation.frames import Buffer

_READ = 1 << 16


class Chunk(NamedTuple):
    """Tasks that were sent together."""

    data: Buffer
    tasks: int
    first: int  # the number of the first
    settled: int  # the parent knew the ends of all tasks up to this number


class ChunkReader:
    """Read one chunk after another, on the main thread of the child."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._rest = b""
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    @property
    def ready(self) -> bool:
        """Return whether there is already more to read."""
        return bool(self._rest or self._poll.poll(0))

    def next(self) -> Chunk | None:
        """Wait for the next chunk and return it; None at the end."""
        data = self._rest or os.read(self._descriptor, _READ)
        while data and len(data) < CHUNK.size:
            data += self._more()
        if not data:
            return None
        size, count, first, settled = CHUNK.unpack_from(data)
        whole = CHUNK.size + size
        if len(data) < whole:
            self._rest = b""
            return Chunk(self._filled(data, whole), count, first, settled)
        self._rest = data[whole:]
        return Chunk(data, count, first, settled)

    def _more(self) -> bytes:
        data = os.read(self._descriptor, _READ)
        if not data:
            raise EOFError
        return data

    def _filled(self, data: bytes, whole: int) -> memoryview:
        """Return the chunk that begins with ``data``. It is not copied, because values can be large."""
        view, have = memoryview(bytearray(whole)), len(data)
        view[:have] = data
        while have < whole:
            count = os.readv(self._descriptor, [view[have:]])
            if not count:
                raise EOFError
            have += count
        return view
