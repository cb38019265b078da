"""The end of test processes that hang: tests/hangs.py, and what the scheduler does then."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILE = "tests/kafka/test_it.py"
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

def test_teardown(hanging):
    pass

def test_failed(hanging):
    assert False

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


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run tests of the file in one test process, as the suite does with several."""
    file = folder / FILE
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(HANGING)
    (folder / "conftest.py").write_text("from tests.conftest import pytest_xdist_make_scheduler\n")
    options = ["--timeout=0.3", "-p", "tests.hangs", "-p", "no:randomly", "--rootdir=.", "--dist=loadfile"]
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--numprocesses=1", *options, *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=50,
        check=False,
    )
