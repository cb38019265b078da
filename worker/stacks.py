"""The Python stacks of a process, read from outside. The process is only paused for milliseconds.

py-spy reads the memory of the process, so this works even while C code holds the interpreter lock.
"""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

from worker.errors import WorkerError

TIMEOUT = 30.0  # seconds; it usually takes a tenth of one


class StackError(WorkerError):
    """The stacks cannot be read."""


def stacks(pid: int, *, native: bool = False) -> str:
    """Return the stacks of all threads of a Python process; with ``native``, also the frames of C extensions.

    Raise StackError with one line that says what to do.
    """
    command = [_program(), "dump", "--full-filenames", "--pid", str(pid), *(["--native"] if native else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT, check=False)  # noqa: S603
    except subprocess.TimeoutExpired:
        raise StackError(f"the stacks of process {pid} could not be read within {TIMEOUT:g} s") from None
    if done.returncode or not done.stdout.strip():
        raise StackError(_problem(pid, done.stderr))
    return done.stdout


def stacks_of_tree(pid: int, *, native: bool = False) -> str:
    """Return the stacks of a process and of the Python processes that it has started. Raise as ``stacks``."""
    parts = [stacks(pid, native=native)]
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with contextlib.suppress(StackError):  # it is not a Python process, or has ended
                parts.append(stacks(child.pid, native=native))
    return "\n".join(parts)


def _program() -> str:
    beside = str(Path(sys.executable).parent)
    found = shutil.which("py-spy", path=beside) or shutil.which("py-spy")
    if found is None:
        raise StackError("py-spy is not installed: pip install py-spy")
    return found


def _problem(pid: int, output: str) -> str:
    """Return the output of py-spy as one line."""
    lines = [line.removeprefix("Error: ") for line in output.splitlines() if line.strip()]
    reason = lines[0] if lines else "no output"
    if "ermission" in reason or "not permitted" in reason:
        return (
            f"the kernel does not let this user read process {pid}: use the user of the worker, and allow ptrace "
            "(kernel.yama.ptrace_scope=0, or the capability SYS_PTRACE)"
        )
    if not Path(f"/proc/{pid}").exists():
        return f"process {pid} has ended"
    return f"the stacks of process {pid} could not be read: {reason}"
