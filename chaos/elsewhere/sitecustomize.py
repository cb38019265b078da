"""For a replica that is to believe itself on another machine: it shares no names of sockets with this one.

Python imports this file at the start of every process that has its folder on PYTHONPATH.
"""

from __future__ import annotations

import socket
from typing import Any

_bind = socket.socket.bind


def bind(self: socket.socket, address: Any) -> None:
    """As before, but for the names without a file."""
    if isinstance(address, str) and address.startswith("\0"):
        address = ("\0elsewhere/" + address[1:])[:107]
    _bind(self, address)


socket.socket.bind = bind  # type: ignore[method-assign, assignment]
