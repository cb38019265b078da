"""The handlers of the measured tasks."""

from __future__ import annotations

import ctypes
import resource
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from worker.codec import Request
    from worker.handlers.batch import Batch

_ROUND = range(200)  # additions between two readings of the clock: a few microseconds


def nothing(request: Request, context: object) -> None:
    """Do nothing."""


def acknowledge(batch: Batch, context: object) -> None:  # noqa: ARG001 - as the contract calls it
    """Do nothing with a batch."""
    for task in batch:
        batch.ack(task)


def spin(request: Request, context: object) -> None:  # noqa: ARG001 - as the contract calls it
    """Use as many seconds of CPU time as the payload says, in plain Python that holds the interpreter lock.

    A task that watched the wall clock would end in time even if the poll thread or another process took its core. That
    would hide exactly what the benchmark must show.
    """
    end = time.thread_time() + float(request.payload)
    while time.thread_time() < end:
        total = 0
        for number in _ROUND:
            total += number


def rest(request: Request, context: object) -> None:  # noqa: ARG001 - as the contract calls it
    """Wait as many seconds as the payload says, as a task does that another program works for.

    More processes than cores can run such tasks at full speed.
    """
    time.sleep(float(request.payload))


def crash(request: Request, context: Any) -> None:
    """Do nothing. If the payload is ``segfault``, end the process with a segmentation fault in the first attempt."""
    if request.payload == "segfault" and context.attempt == 1:
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        ctypes.string_at(0)


def chain(request: Request, context: Any) -> None:
    """Send as many follow-up tasks as the payload says, one after another."""
    left = int(request.payload)
    if left > 0:
        context.send(str(left - 1), key=context.key)
