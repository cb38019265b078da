"""The abstract Unix sockets of a replica. They leave no file behind and accept only processes of the same user."""

from __future__ import annotations

import contextlib
import os
import socket
import struct

_CREDENTIALS = struct.Struct("3i")  # pid, uid and gid
_READ = 1 << 16


def listen(address: str) -> socket.socket:
    """Return a socket that accepts connections without waiting."""
    server = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
    server.bind(f"\0{address}")
    server.listen()
    return server


def accept(server: socket.socket) -> socket.socket | None:
    """Return the next connection; None if there is none or another user made it."""
    try:
        connection, _ = server.accept()
    except OSError:
        return None
    return _checked(connection)


def connect(address: str) -> socket.socket | None:
    """Return a connection; None while nobody listens."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(f"\0{address}")
    except OSError:
        connection.close()
        return None
    return _checked(connection)


def _peer(connection: socket.socket) -> tuple[int, int, int]:
    """Return pid, uid and gid of the other side."""
    pid, uid, gid = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return pid, uid, gid


def _checked(connection: socket.socket) -> socket.socket | None:
    if _peer(connection)[1] != os.getuid():
        connection.close()
        return None
    connection.settimeout(0.0)
    return connection


class Stream:
    """A connection that never waits. Data that cannot be sent yet is kept. ``ended``: the other side is gone."""

    def __init__(self, connection: socket.socket) -> None:
        self.ended = False
        self.received = bytearray()
        self._connection = connection
        self._out = bytearray()

    @property
    def pid(self) -> int:
        """Return the pid of the other side."""
        return _peer(self._connection)[0]

    def fileno(self) -> int:
        """Return the descriptor, for ``select``."""
        return self._connection.fileno()

    @property
    def unsent(self) -> int:
        """Return the bytes that the other side has not accepted."""
        return len(self._out)

    def send(self, data: bytes) -> None:
        """Send this after all earlier data."""
        self._out += data

    def serve(self) -> None:
        """Send and receive as much as possible now."""
        try:
            self._receive()
            while self._out:
                del self._out[: self._connection.send(self._out[:_READ])]
        except BlockingIOError:
            pass
        except OSError:
            self.ended = True

    def _receive(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self._connection.recv(_READ)
                if not data:
                    self.ended = True
                    return
                self.received += data

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()
