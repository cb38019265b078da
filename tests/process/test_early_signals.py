"""Stop signals that arrive while ``worker run`` is still being imported."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from typing import TYPE_CHECKING

import pytest

from tests.unit.environment import NEEDED

if TYPE_CHECKING:
    from pathlib import Path

LIMIT = 20.0  # seconds
SLOW_IMPORT = """
import pathlib, sys, time

class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "worker.cli.app":
            pathlib.Path({reached!r}).touch()
            time.sleep(1.0)

sys.meta_path.insert(0, Slow())
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_during_the_imports_stops_the_replica(tmp_path: Path, number: signal.Signals) -> None:
    """Without a signal handler the kernel would end the process, or discard the signal if the process is PID 1."""
    reached = tmp_path / "reached"
    (tmp_path / "sitecustomize.py").write_text(SLOW_IMPORT.format(reached=str(reached)))
    environment = NEEDED | {
        "KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1",
        "WORKER_HANDLER": "json:loads",
        "WORKER_HTTP_PORT": "0",  # other tests may have a replica on the default port
        "PYTHONPATH": str(tmp_path),
    }
    process = subprocess.Popen([sys.executable, "-P", "-m", "worker", "run"], env=environment)
    try:
        end = time.monotonic() + LIMIT
        while not reached.exists():
            assert time.monotonic() < end
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(LIMIT) == 0
    finally:
        process.kill()
