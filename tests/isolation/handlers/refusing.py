"""A handler whose template process cannot fork, or kill an orphan, when the test says so."""

import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

REFUSING = Path(os.environ["REFUSING"])  # while this file exists, the kernel has no more process numbers
_fork, _kill = os.fork, os.kill


def fork() -> int:
    """Fork, or raise the error of a kernel without process numbers."""
    if REFUSING.exists():
        raise BlockingIOError(11, "Resource temporarily unavailable")
    return _fork()


def kill(pid: int, number: int) -> None:
    """Kill, or raise the error for a process of another user: here every sleep."""
    if Path(f"/proc/{pid}/comm").read_text() == "sleep\n":
        raise PermissionError(1, "Operation not permitted")
    _kill(pid, number)


os.fork, os.kill = fork, kill
if os.environ.get("IGNORING"):
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as programs do that want no zombies


def handle(request: Any, _context: Any) -> str:
    """Do what the payload says."""
    match request.payload.split():
        case ["crash"]:
            os._exit(1)
        case ["sleep", seconds]:
            time.sleep(float(seconds))
        case ["ignoring"]:
            return str(signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN)
        case ["orphan"]:
            subprocess.Popen(["sleep", "3"], start_new_session=True)
            os._exit(1)
    return "done"
