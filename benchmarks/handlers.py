"""What the measured tasks do."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.codec import Request
    from worker.handlers.batch import Batch

_ROUND = range(200)  # additions between two looks at the clock: some microseconds


def nothing(request: Request, context: object) -> None:
    """An empty task."""


def acknowledge(batch: Batch, context: object) -> None:  # noqa: ARG001 - as the contract calls it
    """A batch of empty tasks."""
    for task in batch:
        batch.ack(task)


def spin(request: Request, context: object) -> None:  # noqa: ARG001 - as the contract calls it
    """Use up as much CPU time as the payload says, in seconds, in plain Python that holds the interpreter.

    CPU time, not wall time: a task that only waited for the clock would be "done" in time although the poll
    thread or a neighbour had its core, and would so hide what it is to show.
    """
    end = time.thread_time() + float(request.payload)
    while time.thread_time() < end:
        total = 0
        for number in _ROUND:
            total += number
