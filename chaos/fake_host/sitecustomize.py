"""Makes a replica behave as if it ran on another host, without sharing abstract socket names with this one.

Python imports this file at the start of every process that has its folder on PYTHONPATH.
"""

from __future__ import annotations

import socket
from typing import Any

_bind = socket.socket.bind


def bind(self: socket.socket, address: Any) -> None:
    """Bind with another prefix for abstract names."""
    if isinstance(address, str) and address.startswith("\0"):
        address = ("\0other-host/" + address[1:])[:107]
    _bind(self, address)


socket.socket.bind = bind  # type: ignore[method-assign, assignment]
