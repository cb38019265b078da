"""Handlers that start processes."""

from __future__ import annotations

import os
import subprocess
import threading
import time
from typing import Any


def handle(request: Any, context: Any) -> Any:
    name, _, argument = request.payload.partition(" ")
    return globals()[name](context, argument)


def ok(_context: Any, _argument: str) -> str:
    return str(os.getpid())


def fork_in_a_thread(_context: Any, _argument: str) -> str:
    """Let a helper thread fork a process and end. Then wait for the process."""
    found = []

    def fork() -> None:
        pid = os.fork()
        if pid == 0:
            time.sleep(0.5)
            os._exit(7)
        found.append(pid)

    thread = threading.Thread(target=fork)
    thread.start()
    thread.join()
    return str(os.waitstatus_to_exitcode(os.waitpid(found[0], 0)[1]))


def orphan(_context: Any, _argument: str) -> str:
    """Let a shell start a background process that ends soon."""
    subprocess.run(["sh", "-c", "sleep 0.05 &"], check=True)
    return str(os.getpid())
