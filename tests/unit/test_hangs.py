"""The end of test processes that hang: tests/hangs.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HANGING = """
import ctypes, threading
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

def test_failed(hanging):
    assert False

@pytest.mark.timeout(20)
def test_passed():
    pass

@pytest.mark.timeout(20)
def test_thread_that_never_ends():
    threading.Thread(target=threading.Event().wait).start()
"""


@pytest.mark.parametrize(
    ("names", "summary"),
    [
        (["test_call", "test_passed"], "1 failed, 1 passed"),
        (["test_marked"], "1 failed"),
        (["test_cleanup"], "1 failed"),
        (["test_failed"], "2 failed"),
    ],
)
def test_a_hanging_test_fails_with_its_stack(tmp_path: Path, names: list[str], summary: str) -> None:
    """The run goes on with the next test, in another process."""
    done = run(tmp_path, names)

    assert done.returncode == 1
    assert summary in done.stdout
    assert f"crashed while running 'test_it.py::{names[0]}'" in done.stdout
    assert "Timeout (0:00:0" in done.stderr
    assert "test_it.py" in done.stderr


def test_a_process_that_does_not_end_is_ended(tmp_path: Path) -> None:
    """Its tests have passed, and its stacks tell what it waits for."""
    done = run(tmp_path, ["test_thread_that_never_ends"])

    assert "1 passed" in done.stdout
    assert "Timeout (0:00:00.5" in done.stderr


def run(folder: Path, names: list[str]) -> subprocess.CompletedProcess[str]:
    """Run these tests in one test process, as the suite does with several."""
    (folder / "test_it.py").write_text(HANGING)
    options = ["--numprocesses=1", "--timeout=0.3", "-p", "tests.hangs", "-p", "no:randomly", "--rootdir=."]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *(f"test_it.py::{name}" for name in names)],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
