"""Handlers of batches, and of single tasks that look ahead or at the clock. They do what the requests' payloads say.

A payload is a text, which becomes the result, or JSON such as ``{"do": "nack", "until": 2}`` with the name of a
function below and its arguments. From attempt ``until`` on, the handler acknowledges the task instead. It takes the
tasks of a batch in order. The file ``journal`` gets a line for each start, end and other event. All starts of a batch
have the same time. With ``hurry`` the handler acknowledges every task.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

_former: list[tuple[Any, Any]] = []  # a batch that has ended, and one of its tasks


class _EnoughError(Exception):
    """The handler must leave the rest of the batch unsettled."""


def handle(batch: Any, context: Any, journal: str, *, hurry: bool = False) -> None:
    """Act on all tasks of the batch."""
    now = time.monotonic()
    _write(journal, [_line("start", task, now) for task in batch])
    try:
        for task in batch:
            _act(batch, task, context, journal, hurry=hurry)
    except _EnoughError:
        pass
    finally:
        _former[:] = [(batch, batch[0])]


def _line(event: str, task: Any, now: float) -> dict[str, Any]:
    _, partition, offset = task.origin
    return {
        "event": event,
        "pid": os.getpid(),
        "partition": partition,
        "offset": offset,
        "attempt": task.attempt,
        "time": now,
    }


def _write(journal: str, lines: list[dict[str, Any]]) -> None:
    file = os.open(journal, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, "".join(json.dumps(line) + "\n" for line in lines).encode())
    finally:
        os.close(file)


def _act(batch: Any, task: Any, context: Any, journal: str, *, hurry: bool) -> None:
    arguments = json.loads(task.payload) if task.payload.startswith("{") and not hurry else {"do": "ack"}
    action, until = arguments.pop("do"), arguments.pop("until", None)
    if until is not None and task.attempt >= until:
        action, arguments = "ack", {}
    noted = ACTIONS[action](batch, task, context, **arguments)
    _write(journal, [_line(noted or "end", task, time.monotonic())])
    if noted and noted.startswith("cancelled"):
        raise _EnoughError


# -- actions on one task; the journal gets the text that an action returns instead of "end"


def ack(batch: Any, task: Any, _context: Any) -> None:
    """Acknowledge the task, with its payload as the result."""
    batch.ack(task, task.payload)


def nack(batch: Any, task: Any, _context: Any, reason: str = "not today") -> str:
    """Refuse the task."""
    batch.nack(task, reason)
    return "nack"


def skip(_batch: Any, _task: Any, _context: Any) -> str:
    """Neither acknowledge nor refuse the task."""
    return "skip"


def fail(_batch: Any, _task: Any, _context: Any) -> None:
    """Let an exception end the whole batch."""
    raise ValueError("as told")


def nap(batch: Any, task: Any, _context: Any, seconds: float) -> None:
    """Acknowledge the task after this time."""
    time.sleep(seconds)
    batch.ack(task)


def wait(batch: Any, task: Any, context: Any, signal: str, *, late: bool = False) -> str | None:
    """Wait until the file ``signal`` exists or the batch is cancelled. With ``late``, acknowledge in both cases."""
    while not Path(signal).exists():
        if context.cancelled.wait(0.02):
            if late:
                batch.ack(task, "late")
            return f"cancelled: {context.cancelled.reason}"
    batch.ack(task, "waited")
    return None


def misuse(batch: Any, task: Any, _context: Any) -> None:
    """Try to settle tasks that cannot be settled. The result names the errors."""
    over, foreign = _former[0]
    tries: list[Callable[[], None]] = [
        lambda: batch.ack(batch[0]),  # it is settled already
        lambda: batch.nack(batch[0]),
        lambda: batch.ack(foreign),
        lambda: over.ack(foreign),  # its batch has ended, and its unsettled tasks are queued again
        lambda: batch.ack(None),
    ]
    batch.ack(task, json.dumps([_name_of_error(attempt) for attempt in tries]))


def _name_of_error(attempt: Callable[[], None]) -> str:
    try:
        attempt()
    except Exception as error:  # noqa: BLE001 - the test compares its type
        return type(error).__name__
    return "none"


ACTIONS: dict[str, Callable[..., str | None]] = {
    function.__name__: function for function in (ack, nack, skip, fail, nap, wait, misuse)
}


# -- handlers of single tasks


def peek(request: Any, context: Any, journal: str) -> str:
    """Return the sequences of the next requests. The payload says how many seconds the task takes."""
    seen = json.dumps([upcoming.sequence for upcoming in context.upcoming])
    time.sleep(float(request.payload))
    return seen


def clock(request: Any, context: Any, journal: str) -> str:
    """Work until the deadline. Return why the task was cancelled, and the remaining time before and after."""
    _write(journal, [_line("start", context, time.monotonic())])
    before = context.remaining
    if request.payload == "look":
        return json.dumps(before)
    context.cancelled.wait(120)
    if request.payload == "raise":
        raise RuntimeError("too late")
    seen = {"reason": context.cancelled.reason, "before": before, "after": context.remaining}
    return json.dumps({**seen, "stopped_at": time.time()})


def gated(request: Any, context: Any, journal: str) -> None:
    """Work until the file that the payload names exists. With an empty payload, do not wait."""
    _write(journal, [_line("start", context, time.monotonic())])
    while request.payload and not Path(request.payload).exists():
        time.sleep(0.01)
    _write(journal, [_line("end", context, time.monotonic())])


# -- ending the process


def crash(request: Any, context: Any, journal: str) -> str:
    """Crash the process, or try to allocate more memory than is available."""
    _write(journal, [_line("start", context, time.monotonic())])
    if request.payload == '{"do": "segfault"}':
        ctypes.string_at(0)
    if request.payload == '{"do": "devour"}':
        _devour()
    _write(journal, [_line("end", context, time.monotonic())])
    return "survived"


def _devour() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    used = psutil.Process().memory_info().vms
    resource.setrlimit(resource.RLIMIT_AS, (used + 200 * 1024 * 1024, hard))
    try:
        kept = [bytes(1024 * 1024)]
        while True:
            kept.append(bytes(1024 * 1024))
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
