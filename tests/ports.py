"""Ports for what the tests start."""

from __future__ import annotations

import contextlib
import random
import socket

# Below those that the kernel gives to outgoing connections: nobody takes one between this look and its use.
PORTS = range(20_000, 32_000)


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    for port in random.Random().sample(PORTS, len(PORTS)):  # other processes look too: no common seed
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    message = f"no free port in {PORTS}"
    raise RuntimeError(message)
