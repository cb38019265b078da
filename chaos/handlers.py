"""The handler of a chaos run: does what the payload says, and writes down every start and end."""

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

_HEADROOM = 150 * 2**20  # bytes that a task which eats memory may take
_MEGABYTE = 2**20


def handle(request: Any, context: Any, journal: str, effects: bool = False) -> Any:  # noqa: FBT001, FBT002 - JSON
    """Do it."""
    file = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    try:
        _note(file, "start", context)
        event = "raise"
        try:
            arguments = json.loads(request.payload)
            result = ACTIONS[arguments.pop("do")](file, context, **arguments)
            if effects:
                _write_effect(context)
            event = "end"
        finally:
            _note(file, event, context)
    finally:
        os.close(file)
    return result


def _note(file: int, event: str, context: Any) -> None:
    _, partition, offset = context.origin
    line = f"{event} {os.getpid()} {partition} {offset} {context.attempt} {time.monotonic():.4f}\n"
    os.write(file, line.encode())  # one call, so that lines of several processes do not mix


def _write_effect(context: Any) -> None:
    import sqlalchemy  # noqa: PLC0415 - only where there is a store

    _, partition, offset = context.origin
    insert = sqlalchemy.text("INSERT INTO chaos_effects (partition_number, record_offset) VALUES (:p, :o)")
    context.transaction.execute(insert, {"p": partition, "o": offset})


# -- what requests ask for


def nap(_file: int, _context: Any, seconds: float) -> str:
    """Sleep."""
    time.sleep(seconds)
    return "slept"


def spin(_file: int, _context: Any, seconds: float) -> str:
    """Use the CPU."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass
    return "spun"


def grip(_file: int, _context: Any, seconds: int) -> str:
    """Hold the interpreter lock inside one call of C: no other thread of this process runs meanwhile."""
    ctypes.PyDLL(None).sleep(seconds)
    return "gripped"


def large(_file: int, _context: Any, padding: str) -> str:
    """A request near a topic's usual limit, or beyond."""
    return str(len(padding))


def big(_file: int, _context: Any, size: int) -> bytes:
    """A result beyond the topic's limit."""
    return b"x" * size


def again(_file: int, context: Any, until: int) -> str:
    """Fail before this attempt."""
    if context.attempt < until:
        raise ValueError(f"attempt {context.attempt}")
    return "at last"


def always(_file: int, _context: Any) -> NoReturn:
    """Fail."""
    raise RuntimeError("as told")


def quit(_file: int, _context: Any) -> NoReturn:  # noqa: A001 - what the request is called
    """Ask for the end of the process."""
    raise SystemExit("as told")


def reject(_file: int, _context: Any) -> NoReturn:
    """Send the request to the dead letters."""
    raise worker.Reject("as told")


def hang(_file: int, context: Any) -> NoReturn:
    """Wait to be cancelled."""
    context.cancelled.wait(600)
    raise TimeoutError(str(context.cancelled.reason))


def eat(file: int, context: Any, until: int) -> str:
    """Take memory until there is none left, before this attempt."""
    if context.attempt >= until:
        return "frugal"
    _note(file, "crash", context)  # the other threads have none left either, and it may be one of them that ends
    limits = resource.getrlimit(resource.RLIMIT_AS)
    with open("/proc/self/statm", "rb") as statm:  # noqa: PTH123 - a file of the kernel's
        used = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _HEADROOM, limits[1]))
    hoard = []
    try:
        while True:
            hoard.append(bytearray(_MEGABYTE))
    finally:
        hoard.clear()
        resource.setrlimit(resource.RLIMIT_AS, limits)
        ctypes.CDLL(None).malloc_trim(0)  # the allocator would keep some for later, which looks like a leak


def crash(file: int, context: Any, until: int = 1_000_000) -> str:
    """Segmentation fault, before this attempt."""
    if context.attempt >= until:
        return "survived"
    _note(file, "crash", context)
    with contextlib.suppress(OSError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    ctypes.string_at(0)
    raise AssertionError("still there")


ACTIONS: dict[str, Callable[..., Any]] = {
    **{function.__name__: function for function in (nap, spin, grip, large, big, again)},
    **{function.__name__: function for function in (reject, quit, hang, eat, crash)},
    "raise": always,
    "huge": large,
    "killer": crash,
}
