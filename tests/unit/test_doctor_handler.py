"""``worker doctor`` with a handler module or an offset store that misbehaves."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING

from tests.unit.environment import load
from worker.cli.examine import examine

if TYPE_CHECKING:
    from pathlib import Path


def doctor(folder: Path, handler: str) -> subprocess.CompletedProcess[str]:
    """Run ``worker doctor`` in a folder with the module of the handler, without a broker."""
    environment = {
        **os.environ,
        "KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1",
        "KAFKA_REQUEST_TOPIC": "requests",
        "KAFKA_ACK_TOPIC": "answers",
        "KAFKA_CONSUMER_GROUP_ID": "workers",
        "KAFKA_CONNECT_TIMEOUT": "1s",
        "WORKER_HANDLER": handler,
    }
    return subprocess.run(
        [sys.executable, "-m", "worker", "doctor"],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_doctor_ends_although_the_handler_has_started_a_thread(tmp_path: Path) -> None:
    (tmp_path / "threaded.py").write_text(
        "import threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\n"
        "def handle(request, context): pass\n"
    )
    started = time.monotonic()
    done = doctor(tmp_path, "threaded:handle")
    assert done.returncode == 4
    assert time.monotonic() - started < 30


def test_doctor_says_that_the_import_of_the_handler_ends_the_process(tmp_path: Path) -> None:
    (tmp_path / "ending.py").write_text("import os\nos._exit(0)\n")
    done = doctor(tmp_path, "ending:handle")
    assert done.returncode == 3, (done.stdout, done.stderr)
    assert "WORKER_HANDLER=ending:handle: loading it ended the process with exit code 0" in done.stdout + done.stderr


def test_doctor_checks_the_offset_store() -> None:
    settings = load(
        WORKER_OFFSET_STORE="nowhere:store",
        WORKER_HANDLER="examples.hello:greet",
        KAFKA_BOOTSTRAP_SERVER="127.0.0.1:1",
        KAFKA_CONNECT_TIMEOUT="1s",
    )
    assert any("nowhere" in check.text for check in examine(settings))
