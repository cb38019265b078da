"""What is known about a crash: the task that the dead process was running."""

from __future__ import annotations

from typing import NamedTuple


class Crash(NamedTuple):
    """The task of one partition that its last owner was running when it died. ``offset`` None: it ran none of them."""

    offset: int | None
    attempt: int = 0
