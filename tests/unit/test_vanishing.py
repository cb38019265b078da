"""Processes and threads that end while /proc is read."""

from __future__ import annotations

import subprocess
import threading
import time
from typing import TYPE_CHECKING

import pytest

from worker.isolation import forking
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
