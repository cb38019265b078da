"""Ports for servers that the tests start."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import threading

# Below the ports of outgoing connections, so that the kernel gives none away between the check and its use.
PORTS = range(20_000, 32_000)

_lock = threading.Lock()
_given: set[int] = set()


def free_port() -> int:
    """Return a free port of the loopback interface that no other caller was given. Any thread may call it.

    Another test would find a port free as well, between the check and its use. So test processes that run at the same
    time choose from separate ports.
    """
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    ours = PORTS[number :: int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))]
    with _lock:
        for port in random.Random().sample(ours, len(ours)):  # other processes look too: no common seed
            if port in _given:
                continue
            with socket.socket() as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                _given.add(port)
                return port
    message = f"no free port in {ours}"
    raise RuntimeError(message)
