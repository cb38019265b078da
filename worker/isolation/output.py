"""Passes a child's output on to the replica's stdout and stderr, and keeps its last part. Template process.

Each of the child's two streams is replaced by a pipe. So the last message of a library that ends its process
(``terminate called after throwing ...``) is still available when the process is gone.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

KEPT_BYTES = 4096  # the last output that is kept
STREAMS = (1, 2)
RETRY_MS = 50  # before retrying output that the replica's own stream did not accept
FINAL_SECONDS = 1.0  # to pass on what a child has left, if nothing reads the replica's output
_PIECE = select.PIPE_BUF  # bytes that a pipe takes at once, so that lines of several processes do not mix
_READ = 1 << 16
_KEPT_PIECES = 256


class Printed(NamedTuple):
    """A piece of output. ``at`` is when it was read, monotonic."""

    at: float
    text: str


def since(began: float, printed: Iterable[Printed]) -> str:
    """Return the output since ``began``, monotonic."""
    return "".join(text for at, text in printed if at >= began).strip()


class Stream:
    """One of a child's streams. Output that its target does not accept stays in the pipe, and the child waits."""

    def __init__(self, target: int) -> None:
        self.target = target
        self.source, self._sink = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.source, False)
        self.ended = False  # no process can write to it any more
        self._rest = b""
        self._poll = select.poll()
        self._poll.register(target, select.POLLOUT)

    def stand_in(self) -> None:
        """Replace the child's stream with this pipe. Call it in the child."""
        os.dup2(self._sink, self.target)
        os.close(self._sink)
        os.close(self.source)

    def passed_on(self) -> None:
        """Close our copy of the end that the child has now."""
        os.close(self._sink)

    @property
    def stuck(self) -> bool:
        """Return whether some output still has to be passed on."""
        return bool(self._rest)

    def take(self) -> bytes:
        """Return new output; nothing while earlier output still has to be passed on."""
        if self._rest or self.ended:
            return b""
        try:
            self._rest = os.read(self.source, _READ)
        except BlockingIOError:
            return b""
        self.ended = not self._rest
        return self._rest

    def pass_on(self, until: float = 0.0) -> None:
        """Write what the target accepts. Wait for it until that moment, monotonic."""
        while self._rest and self._poll.poll(max(0.0, until - time.monotonic()) * 1000):
            size = self._rest.rfind(b"\n", 0, _PIECE) + 1 or _PIECE
            # Nothing reads it any more, so the output is lost, as it would be without the pipe.
            with contextlib.suppress(OSError):
                os.write(self.target, self._rest[:size])
            self._rest = self._rest[size:]

    def close(self) -> None:
        """Free the descriptor."""
        os.close(self.source)


class Output:
    """Both streams of one child."""

    def __init__(self, targets: Sequence[int] = STREAMS) -> None:
        """``targets`` receive its output."""
        self.streams: list[Stream] = []
        try:
            for target in targets:
                self.streams.append(Stream(target))
        except OSError:
            self.discard()
            raise
        self._kept: deque[tuple[float, bytes]] = deque(maxlen=_KEPT_PIECES)

    def stand_in(self) -> None:
        """Send everything that this process prints here. Call it in the child."""
        for stream in self.streams:
            stream.stand_in()

    def serve(self, stream: Stream, until: float = 0.0) -> bool:
        """Pass on new output and keep the last of it. Return whether there was any."""
        data = stream.take()
        if data:
            self._kept.append((time.monotonic(), data[-KEPT_BYTES:]))
        stream.pass_on(until)
        return bool(data)

    def finish(self) -> list[Printed]:
        """Pass on the remaining output after the child and everything it started have ended. Return the last of it."""
        until = time.monotonic() + FINAL_SECONDS
        for stream in self.streams:
            stream.pass_on(until)
            while not stream.stuck and self.serve(stream, until):
                pass
            stream.close()
        return self._last()

    def discard(self) -> None:
        """Close all ends of the pipes. There is no child."""
        for stream in self.streams:
            stream.passed_on()
            stream.close()

    def _last(self) -> list[Printed]:
        found: deque[Printed] = deque()
        room = KEPT_BYTES
        while self._kept and room > 0:
            at, data = self._kept.pop()
            found.appendleft(Printed(at, data[-room:].decode(errors="replace")))
            room -= len(data)
        return list(found)


class Outputs:
    """The outputs of all children. ``poll`` is the template's."""

    def __init__(self, poll: select.poll) -> None:
        self._poll = poll
        self._streams: dict[int, tuple[Output, Stream]] = {}  # by the descriptor from which they are read
        self._stuck: set[int] = set()  # those of them with output that could not be passed on

    def add(self, output: Output) -> None:
        """Register an output whose child has its ends."""
        for stream in output.streams:
            stream.passed_on()
            self._streams[stream.source] = output, stream
            self._poll.register(stream.source, select.POLLIN)

    def serve(self, descriptor: int) -> bool:
        """Pass on output from this descriptor. Return whether it belongs to a stream."""
        if descriptor not in self._streams:
            return False
        output, stream = self._streams[descriptor]
        output.serve(stream)
        if stream.ended:
            self._forget(stream)
        elif stream.stuck and descriptor not in self._stuck:
            self._stuck.add(descriptor)  # and the child has to wait when its pipe is full
            self._poll.unregister(descriptor)
        return True

    def serve_stuck(self) -> int | None:
        """Retry output that could not be passed on. Return the milliseconds until the next retry; None: never."""
        for descriptor in [*self._stuck]:
            self.serve(descriptor)
            if not self._streams[descriptor][1].stuck:
                self._stuck.discard(descriptor)
                self._poll.register(descriptor, select.POLLIN)
        return RETRY_MS if self._stuck else None

    def finish(self, output: Output) -> list[Printed]:
        """See ``Output``."""
        for stream in output.streams:
            self._forget(stream)
        return output.finish()

    def _forget(self, stream: Stream) -> None:
        if self._streams.pop(stream.source, None) is not None and stream.source not in self._stuck:
            self._poll.unregister(stream.source)
        self._stuck.discard(stream.source)

    def close(self) -> None:
        """Close everything in a child, which does not handle the output of others."""
        for descriptor in self._streams:
            os.close(descriptor)
