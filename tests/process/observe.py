"""Replicas of stand-ins, run as separate programs and watched from outside."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WAIT_LIMIT = 30.0  # seconds; only a failing test waits this long


def until(condition: Callable[[], bool], seconds: float = WAIT_LIMIT) -> None:
    """Wait until the condition holds."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)


def alive(pid: int) -> bool:
    """Return whether a process runs. A process that has ended and was not reaped does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Replica:
    """A running replica and its output."""

    def __init__(self, folder: Path, behaviours: tuple[str, ...], options: dict[str, Any]) -> None:
        self.folder = folder
        self._stderr = folder / "stderr"
        with self._stderr.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, HERE / "replica.py", folder, json.dumps({"behaviours": behaviours, **options})],
                env={**os.environ, "PYTHONPATH": str(ROOT)},
                stderr=stderr,
                # The program inherits an ignored SIGHUP from the shell that runs the tests.
                preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),  # noqa: PLW1509 - one call
            )

    @property
    def stderr(self) -> str:
        return self._stderr.read_text()

    def events(self, name: str) -> list[dict[str, Any]]:
        """Return the log lines of this name, so far."""
        lines = [json.loads(line) for line in self.stderr.splitlines() if line.startswith("{") and line.endswith("}")]
        return [line for line in lines if line["event"] == name]

    def wait_for(self, name: str, count: int = 1, seconds: float = WAIT_LIMIT) -> list[dict[str, Any]]:
        """Return the log lines of this name, once there are ``count`` of them."""
        until(lambda: len(self.events(name)) >= count, seconds)
        return self.events(name)

    def running(self) -> list[int]:
        """Return the pids of the processes that have begun to take tasks, dead or alive."""
        return [int(file.name.removeprefix("running-")) for file in self.folder.glob("running-*")]

    def wait_running(self, count: int = 1) -> list[int]:
        """Return the pids of these processes, once there are ``count`` of them."""
        until(lambda: len(self.running()) >= count)
        return self.running()

    def send(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def exit_code(self, seconds: float = WAIT_LIMIT) -> int:
        return self.process.wait(seconds)
