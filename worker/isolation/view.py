"""What a child process needs to know about a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from worker.core.model import Headers


class TaskView(NamedTuple):
    """A task as plain values.

    ``group`` is the number of its ordering group, 0 for none: after a failure the child skips its remaining tasks of
    that group. ``upcoming`` has offset and value of the records that will probably come next.
    """

    topic: str
    partition: int
    offset: int
    attempt: int  # including this start
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    timestamp_ms: int = 0
    group: int = 0
    upcoming: tuple[tuple[int, bytes | None], ...] = ()
    resume: bytes | None = None  # the checkpoint to resume from
