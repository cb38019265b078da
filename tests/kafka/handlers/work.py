"""The handler of these tests. It does what the request's payload says, and records its starts and ends.

A payload is a text, which becomes the result, or JSON such as ``{"do": "nap", "seconds": 2}`` with the name of a
function below and its arguments. Every start and end is appended to the file ``journal``. With ``hurry`` the functions
that take a number of seconds are skipped.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

import worker

if TYPE_CHECKING:
    from collections.abc import Callable


def handle(request: Any, context: Any, journal: str | None = None, *, hurry: bool = False) -> Any:
    """Do what the payload says."""
    pid = os.getpid()
    _write(journal, "start", context)
    event = "raise"
    try:
        result = _act(request.payload, context, hurry=hurry)
        event = "end"
    finally:
        if os.getpid() == pid:
            _write(journal, event, context)
    return result


def _write(journal: str | None, event: str, context: Any) -> None:
    if journal is None:
        return
    _, partition, offset = context.origin
    entry = {"event": event, "pid": os.getpid(), "partition": partition, "offset": offset}
    entry |= {"attempt": context.attempt, "time": time.monotonic()}
    file = os.open(journal, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, json.dumps(entry).encode() + b"\n")  # one call, so that lines of several processes do not mix
    finally:
        os.close(file)


def _act(payload: str, context: Any, *, hurry: bool) -> Any:
    if not payload.startswith("{"):
        return payload
    arguments = json.loads(payload)
    if hurry and "seconds" in arguments:
        return "hurried"
    return ACTIONS[arguments.pop("do")](context, **arguments)


# -- taking time


def nap(_context: Any, seconds: float) -> str:
    """Sleep. Other threads can run."""
    time.sleep(seconds)
    return f"slept {seconds}"


def spin(_context: Any, seconds: float) -> str:
    """Use the CPU, in Python."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass
    return f"spun {seconds}"


def compute(_context: Any, seconds: float) -> str:
    """Use this many seconds of CPU time, however busy the machine is."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return f"computed {seconds}"


def grip(_context: Any, seconds: int) -> str:
    """Hold the interpreter lock inside one call of C: no other thread of this process runs meanwhile."""
    ctypes.PyDLL(None).sleep(seconds)
    return f"gripped {seconds}"


def heed(context: Any, seconds: float) -> str:
    """Sleep, but end when the task is cancelled."""
    context.cancelled.wait(seconds)
    context.cancelled.raise_if_set()
    return f"slept {seconds}"


# -- results


def big(_context: Any, size: int) -> bytes:
    """Return a result of ``size`` bytes."""
    return b"x" * size


def number(_context: Any) -> int:
    """Return a result of a type that an answer cannot have."""
    return 7


def surrogate(_context: Any) -> str:
    """Return a text that cannot be encoded."""
    return "\ud800"


def chatter(_context: Any, megabytes: int) -> str:
    """Print a lot to stdout and stderr."""
    for _ in range(megabytes):
        print("o" * 500_000)  # noqa: T201 - the point
        print("e" * 500_000, file=sys.stderr)  # noqa: T201 - the point
    return "printed"


# -- failures


class StubbornError(Exception):
    """An exception that can be neither pickled nor converted to text."""

    def __reduce__(self) -> NoReturn:
        raise TypeError("not to be pickled")

    def __str__(self) -> NoReturn:
        raise LowError


class LowError(BaseException):
    """A BaseException that is no Exception."""


def fail(_context: Any, kind: str = "ValueError", text: str = "as told") -> NoReturn:
    """Raise an exception of this name."""
    raise ERRORS[kind](text)


def fail_until(context: Any, attempt: int) -> str:
    """Fail before this attempt."""
    if context.attempt < attempt:
        raise ValueError(f"attempt {context.attempt}")
    return f"succeeded on attempt {context.attempt}"


def retry_until(context: Any, attempt: int, after: float) -> str:
    """Ask for another attempt until the attempt is ``attempt``."""
    if context.attempt < attempt:
        raise worker.Retry("not yet", after=after)
    return f"succeeded on attempt {context.attempt}"


def leave(_context: Any, code: int) -> NoReturn:
    """Raise SystemExit."""
    sys.exit(code)


def abort(_context: Any) -> NoReturn:
    """End the process with SIGABRT."""
    os.abort()


def crash(_context: Any) -> NoReturn:
    """Read unmapped memory: SIGSEGV, which no Python code can catch."""
    ctypes.string_at(0)
    raise AssertionError("address 0 was readable")


# -- children


def fork(_context: Any, child: str) -> str:
    """Fork. The child returns to the caller (``return``), exits (``exit``) or executes another program (``exec``)."""
    pid = os.fork()
    if pid == 0:
        if child == "exit":
            os._exit(5)
        if child == "exec":
            os.execv(sys.executable, [sys.executable, "-c", "raise SystemExit(5)"])
        return "the child"
    with contextlib.suppress(ChildProcessError):  # another part of the process may have reaped it
        os.waitpid(pid, 0)
    return "the parent"


def brood(_context: Any, seconds: float) -> str:
    """Fork a child that never ends, and sleep."""
    if os.fork() == 0:
        while True:
            time.sleep(60)
    time.sleep(seconds)
    return "done"


ERRORS: dict[str, Any] = {
    "ValueError": ValueError,
    "Reject": worker.Reject,
    "StubbornError": StubbornError,
    "LowError": LowError,
    "KeyboardInterrupt": KeyboardInterrupt,
    "GeneratorExit": GeneratorExit,
    "StopIteration": StopIteration,
    "MemoryError": MemoryError,
}
_TIME = (nap, spin, compute, grip, heed)
_RESULTS = (big, number, surrogate, chatter)
_FAILURES = (fail, fail_until, retry_until, leave, abort, crash)
_CHILDREN = (fork, brood)
ACTIONS: dict[str, Callable[..., Any]] = {
    function.__name__: function for function in (*_TIME, *_RESULTS, *_FAILURES, *_CHILDREN)
}
