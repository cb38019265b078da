"""The end of test processes that hang: tests/hangs.py, and what the scheduler does then."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.process.observe import until

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parents[2]
FILE = "tests/kafka/test_it.py"
HANGING = """
import ctypes, os, pathlib, threading, time
import pytest
from tests import hangs

hangs.GRACE_SECONDS = 0.5

def hang():
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    lock(mutex)

@pytest.fixture
def hanging():
    yield
    hang()

def test_call():
    hang()

@pytest.mark.timeout(0.3)
def test_marked():
    hang()

def test_cleanup():
    try:
        threading.Event().wait()
    finally:
        threading.Event().wait()

def test_teardown(hanging):
    pass

def test_failed(hanging):
    assert False

def test_stopped():
    pathlib.Path("starting").write_text(str(os.getpid()))
    pathlib.Path("starting").rename("here")
    time.sleep(30)

@pytest.mark.timeout(20)
def test_passed():
    pass
"""


@pytest.mark.parametrize("name", ["test_call", "test_marked", "test_cleanup"])
def test_a_hanging_test_fails_once_and_the_run_goes_on(tmp_path: Path, name: str) -> None:
    """The next test runs in another process. The failed test runs again if the failed tests are asked for."""
    done = run(tmp_path, f"{FILE}::{name}", f"{FILE}::test_passed")

    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert f"crashed while running '{FILE}::{name}'" in done.stdout
    assert "Timeout (0:00:0" in done.stderr
    assert f'{Path(FILE).name}", line' in done.stderr
    again = run(tmp_path, FILE, "--last-failed", "--collect-only", "--quiet", "--numprocesses=0")
    assert again.stdout.splitlines()[0] == f"{FILE}::{name}"


@pytest.mark.parametrize(("name", "summary"), [("test_teardown", "1 failed, 1 passed"), ("test_failed", "2 failed")])
def test_a_test_fails_if_its_teardown_hangs(tmp_path: Path, name: str, summary: str) -> None:
    """It has a result already, and no other test is left."""
    done = run(tmp_path, f"{FILE}::{name}")

    assert summary in done.stdout
    assert f"crashed while running '{FILE}::{name}'" in done.stdout
    assert "in hang" in done.stderr


def test_a_terminated_run_names_the_tests_that_were_running(tmp_path: Path) -> None:
    """Here, the test process is stopped."""
    with started(tmp_path, f"{FILE}::test_stopped", "--timeout=40") as running:
        until((tmp_path / "here").exists)
        os.kill(int((tmp_path / "here").read_text()), signal.SIGSTOP)
        running.terminate()
        stdout, _ = running.communicate(timeout=30)

    assert running.returncode == 143
    assert f"terminated while these tests were running: {FILE}::test_stopped" in stdout


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the file in one test process, as the suite does with several."""
    with started(folder, *arguments) as running:
        stdout, stderr = running.communicate(timeout=50)
    return subprocess.CompletedProcess(running.args, running.returncode, stdout, stderr)


@contextlib.contextmanager
def started(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    file = folder / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HANGING)
    (folder / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    options = ["--timeout=0.3", "-p", "tests.hangs", "-p", "no:randomly", "--rootdir=.", "--dist=loadfile"]
    with subprocess.Popen(
        [sys.executable, "-m", "pytest", "--numprocesses=1", *options, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()
