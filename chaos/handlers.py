"""The handler of a chaos run. The payload selects its action, and a journal records every start and end."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import time
from typing import TYPE_CHECKING, Any, NoReturn

import worker

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADROOM = 150 * 2**20  # bytes that a task may allocate before it runs out of memory
_MEGABYTE = 2**20
_OVERUSE = 300  # megabytes, twice the limit
_BEYOND = 60.0  # seconds, longer than any limit and its grace


def handle(request: Any, context: Any, journal: str, effects: bool = False) -> Any:  # noqa: FBT001, FBT002 - JSON
    """Run the action of the payload."""
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        _write(file, "start", context)
        event = "raise"
        try:
            arguments = json.loads(request.payload)
            result = ACTIONS[arguments.pop("do")](file, context, **arguments)
            if effects:
                _write_effect(context)
            event = "end"
        except worker.Cancelled:
            # A drain or a revoked partition does not use an attempt.
            event = "stop" if context.cancelled.reason in ("drain", "revoked") else "raise"
            raise
        finally:
            _write(file, event, context)
    finally:
        os.close(file)
    return result


def _write(file: int, event: str, context: Any, step: int = 0) -> None:
    _, partition, offset = context.origin
    replica = os.environ["WORKER_REPLICA"]
    line = f"{event} {replica} {os.getpid()} {partition} {offset} {context.attempt} {time.monotonic():.4f} {step}\n"
    os.write(file, line.encode())  # in one call, so that lines of several processes do not mix


def _write_effect(context: Any) -> None:
    import sqlalchemy  # noqa: PLC0415 - only runs with a store need it

    _, partition, offset = context.origin
    insert = sqlalchemy.text("INSERT INTO chaos_effects (partition_number, record_offset) VALUES (:p, :o)")
    context.transaction.execute(insert, {"p": partition, "o": offset})


# -- the kinds of requests


def sleep(_file: int, _context: Any, seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "slept"


def echo(_file: int, _context: Any, seconds: float, token: str) -> str:
    """Sleep, and return the token, so that a mix-up of results is visible."""
    time.sleep(seconds)
    return token


def spin(_file: int, _context: Any, seconds: float) -> str:
    """Use the CPU."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return "spun"


def hold_gil(_file: int, _context: Any, seconds: int) -> str:
    """Hold the interpreter lock inside one C call, so that no other thread of this process runs."""
    ctypes.PyDLL(None).sleep(seconds)
    return "held"


def large(_file: int, _context: Any, padding: str) -> str:
    """Accept a request near a topic's usual size limit or above it."""
    return str(len(padding))


def large_result(_file: int, _context: Any, size: int) -> bytes:
    """Return a result beyond the topic's limit."""
    return b"x" * size


def retry(_file: int, context: Any, until: int) -> str:
    """Fail before this attempt."""
    if context.attempt < until:
        raise ValueError(f"attempt {context.attempt}")
    return "succeeded"


def always_raise(_file: int, _context: Any) -> NoReturn:
    """Fail."""
    raise RuntimeError("requested")


def system_exit(_file: int, _context: Any) -> NoReturn:
    """Raise SystemExit."""
    raise SystemExit("requested")


def reject(_file: int, _context: Any) -> NoReturn:
    """Reject the request."""
    raise worker.Reject("requested")


def hang(_file: int, context: Any) -> NoReturn:
    """Wait for cancellation."""
    context.cancelled.wait(600)
    raise TimeoutError(str(context.cancelled.reason))


def exhaust_memory(file: int, context: Any, until: int) -> str:
    """Allocate until there is no memory left, before this attempt."""
    if context.attempt >= until:
        return "modest"
    _write(file, "crash", context)  # the other threads have no memory either, and one of them may end the process
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - a file of the kernel
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _HEADROOM, limits[1]))
    hoard = []
    try:
        while True:
            hoard.append(bytearray(_MEGABYTE))
    finally:
        hoard.clear()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        ctypes.CDLL(None).malloc_trim(0)  # otherwise the allocator keeps some, which looks like a leak


def segfault(file: int, context: Any, until: int = 1_000_000) -> str:
    """End the process with a segmentation fault, before this attempt."""
    if context.attempt >= until:
        return "survived"
    _write(file, "crash", context)
    with contextlib.suppress(OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)
    raise AssertionError("the process survived a segmentation fault")


# -- the kinds of requests that use a feature of the worker


def long(_file: int, context: Any, seconds: float) -> str:
    """Wait for a long time, or for cancellation."""
    context.cancelled.wait(seconds)
    context.cancelled.raise_if_set()
    return "waited"


def steps(file: int, context: Any, steps: int, seconds: float) -> str:
    """Take steps from the last checkpoint on, with a checkpoint after each."""
    done = int(context.resume or b"0")
    _write(file, "resume", context, done)
    while done < steps:
        context.cancelled.wait(seconds)
        context.cancelled.raise_if_set()
        done += 1
        context.checkpoint(str(done).encode())
        _write(file, "checkpoint", context, done)
    return str(done)


def follow_up(_file: int, context: Any) -> str:
    """Send a request that does nothing."""
    context.send(json.dumps({"do": "sleep", "seconds": 0.0}), key=context.key)
    return "sent"


def overrun(file: int, context: Any, until: int) -> str:
    """Exceed the time limit and ignore cancellation, before this attempt."""
    if context.attempt >= until:
        return "in time"
    _write(file, "crash", context)
    time.sleep(_BEYOND)
    raise AssertionError("an attempt outlived its time limit")


def overuse(file: int, context: Any, until: int) -> str:
    """Exceed the memory limit, before this attempt."""
    if context.attempt >= until:
        return "modest"
    _write(file, "crash", context)
    hoard = []
    for _ in range(_OVERUSE):
        hoard.append(b"x" * _MEGABYTE)
        time.sleep(0.002)
    time.sleep(_BEYOND)
    raise AssertionError("an attempt outlived its memory limit")


ACTIONS: dict[str, Callable[..., Any]] = {
    **{
        function.__name__.replace("_", "-"): function
        for function in (
            *(sleep, spin, hold_gil, large, large_result, retry, reject, hang, exhaust_memory, segfault),
            *(long, steps, follow_up, overrun, overuse, echo),
        )
    },
    "raise": always_raise,
    "exit": system_exit,
    "huge": large,
    "always-segfault": segfault,
}
