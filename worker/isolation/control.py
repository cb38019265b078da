"""Messages between a worker process and its template process: JSON with descriptors over a SEQPACKET socket."""

from __future__ import annotations

import json
import socket
from typing import Any

GREATEST = 1 << 20  # bytes of a message
_MOST_DESCRIPTORS = 16


def pair() -> tuple[socket.socket, socket.socket]:
    """Return both ends. Each notices the end of the other by an empty message."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(to: socket.socket, message: dict[str, Any], descriptors: list[int] | None = None) -> None:
    """Send a message. Raise OSError if there is no receiver."""
    socket.send_fds(to, [json.dumps(message).encode()], descriptors or [])


def receive(source: socket.socket) -> tuple[dict[str, Any] | None, list[int]]:
    """Return the next message; None at the end. If the socket has a time-out, raise TimeoutError."""
    try:
        data, descriptors, _, _ = socket.recv_fds(source, GREATEST, _MOST_DESCRIPTORS, socket.MSG_CMSG_CLOEXEC)
    except ConnectionResetError:
        return None, []
    return (json.loads(data) if data else None), descriptors
