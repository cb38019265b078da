"""A container that runs out of memory: the kernel kills the child and not the larger worker process beside it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.timeout(90)

LIMIT = 400 << 20
ROOT = Path("/sys/fs/cgroup")
HERE = Path(__file__).parent
# The worker process uses 200 MB, the second task uses the rest, and the third task still runs.
PROGRAM = """
import sys
from pathlib import Path
Path(sys.argv[1]).write_text("0")
from tests.isolation.rig import Rig, names
ballast = bytearray(b"x") * (200 << 20)
rig = Rig()
outcomes = rig.run("ok", "grow", "ok")
print(names(outcomes), outcomes[1].failure.message)
rig.executor.stop()
"""


@pytest.fixture
def group() -> Iterator[Path]:
    """Yield a control group with a memory limit, of version 2 or 1. A process joins it through ``cgroup.procs``."""
    folder, limit, swap = _place()
    try:
        folder.mkdir()
        (folder / limit).write_text(str(LIMIT))
    except OSError as error:
        pytest.skip(f"no control group with a memory limit can be made here: {error}")
    if (folder / swap).exists():
        (folder / swap).write_text("0" if swap == "memory.swap.max" else str(LIMIT))
    yield folder
    folder.rmdir()


def _place() -> tuple[Path, str, str]:
    name = f"worker-test-{os.getpid()}"
    if (ROOT / "memory").is_dir():
        return ROOT / "memory" / name, "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
    return ROOT / name, "memory.max", "memory.swap.max"


def test_the_kernel_kills_the_child_when_a_container_runs_out_of_memory(group: Path) -> None:
    """The task is a failed attempt, and the worker process keeps running."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), str(HERE / "handlers")])}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(group / "cgroup.procs")],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    said = done.stdout.splitlines()[-1]
    assert said.startswith("['OK', 'FAILED ProcessDied', 'OK']"), said
    assert "SIGKILL, which is also what the kernel sends when memory runs out" in said
