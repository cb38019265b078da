"""A handler whose import starts a thread and opens a socket, so that its process cannot be forked."""

from __future__ import annotations

import ctypes
import os
import socket
import threading
import time

THREAD = threading.Thread(target=time.sleep, args=(1000,), daemon=True)
THREAD.start()
KEPT = socket.socketpair()


def handle(request: object, _context: object) -> str:
    """Crash, wait, or return the process id."""
    if "crash" in str(request):
        print("about to crash")  # noqa: T201 - the test reads it
        ctypes.string_at(0)
    if "wait" in str(request):
        print("waiting")  # noqa: T201 - the test reads it
        time.sleep(1000)
    return str(os.getpid())
