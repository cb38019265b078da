"""Processes and threads that end while /proc is read, and a /proc that cannot be read."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.unit.documents import ROOT
from worker.isolation import forking
from worker.supervisor import cgroup
from worker.supervisor.usage import cpu_of_tree

if TYPE_CHECKING:
    from collections.abc import Iterator

SECONDS = 1.0  # the defects showed several times in each second


@pytest.fixture
def shell() -> Iterator[subprocess.Popen[bytes]]:
    """A shell that starts one short process after another."""
    process = subprocess.Popen(["/bin/sh", "-c", "while :; do /bin/true; done"])
    yield process
    process.kill()
    process.wait()


def test_the_cpu_time_of_a_tree_is_read_while_its_processes_end(shell: subprocess.Popen[bytes]) -> None:
    """The supervisor reads it on every turn, and an exception would end it."""
    values = [cpu_of_tree(shell.pid) for _ in turns()]
    assert values[-1] > 0


def test_the_threads_of_a_template_are_listed_while_one_ends() -> None:
    """An exception would end the template, and the worker process with it."""
    over = threading.Event()

    def start_threads() -> None:
        while not over.is_set():
            thread = threading.Thread(target=int)
            thread.start()
            thread.join()

    starter = threading.Thread(target=start_threads)
    starter.start()
    try:
        lengths = [len(list(forking._threads())) for _ in turns()]
    finally:
        over.set()
        starter.join()
    assert min(lengths) >= 1  # the thread that starts the others


def turns() -> Iterator[None]:
    """Yield again and again for ``SECONDS``."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield


def test_without_free_descriptors_the_watchdog_waits_and_the_usage_is_zero() -> None:
    """An unknown CPU time must not look like a process that does nothing, and must not end the supervisor."""
    program = """
import os, resource
from types import SimpleNamespace
from worker.core.liveness import LivenessCheck, Limits
from worker.supervisor.usage import usage_of
from worker.supervisor.watchdog import watch

child = SimpleNamespace(signal=lambda number: print("killed"))
block = SimpleNamespace(read_stamp=lambda: SimpleNamespace(turns=1))
process = SimpleNamespace(pid=os.getpid(), child=child, kill_at=None, status_block=block, task={}, stuck=False)
process.liveness = LivenessCheck(Limits(1.0, 1.0))
watch(0, process, 0.0)
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
while True:
    try:
        os.open("/dev/null", os.O_RDONLY)
    except OSError:
        break
for second in range(10):
    watch(0, process, float(second))
print(usage_of(os.getpid()))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "Usage(cpu_seconds=0.0, resident_bytes=0)\n", done.stderr


def test_a_folder_that_cannot_be_looked_at_counts_as_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """The supervisor looks for the control group on every turn."""
    real = Path.stat

    def refuse(path: Path, **options: Any) -> Any:
        if path.is_relative_to("/sys/fs/cgroup"):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        return real(path, **options)

    monkeypatch.setattr(Path, "stat", refuse)
    assert cgroup.folders("") == []


def test_a_lifeline_may_have_a_large_descriptor() -> None:
    """It has the number that the supervisor gave it, and a supervisor of many processes has many."""
    program = """
import os, resource
from worker.supervisor.lifeline import attach

hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
reader, writer = os.pipe()
os.dup2(reader, 1500)
attach(os.getppid(), 1500)
print("attached")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout == "attached\n", done.stderr
