"""What a handler may know about its task: a plain value that can be pickled."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from worker.codec import decode_request
from worker.core.task_state import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.codec import Request
    from worker.core.model import Headers, Task


@dataclass(slots=True)  # not frozen, because creation would take four times as long
class TaskView:
    """One attempt of one request. ``deadline`` is in seconds since the epoch. Treat it as immutable."""

    origin: Origin
    attempt: int
    key: bytes | None
    headers: Headers
    deadline: float | None = None
    upcoming: tuple[bytes | None, ...] = ()  # values of the records that will probably come next
    resume: bytes | None = None  # the checkpoint to resume from
    decode: Callable[[bytes | None], Request] = decode_request  # reads the requests


def view_of(task: Task, deadline: float | None, decode: Callable[[bytes | None], Request] = decode_request) -> TaskView:
    """Return the view of a task whose next attempt is about to start."""
    record = task.record
    upcoming = tuple([one.value for one in task.upcoming]) if task.upcoming else ()
    origin = Origin(record.partition.topic, record.partition.number, record.offset)
    return TaskView(origin, task.attempt, record.key, record.headers, deadline, upcoming, task.resume, decode)
