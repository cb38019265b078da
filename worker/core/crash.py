"""What is known about the crash of a previous owner: the task that it was running."""

from __future__ import annotations

from typing import NamedTuple


class Crash(NamedTuple):
    """The task of a partition that its owner was running when it died; ``offset`` is None if it ran none of them."""

    offset: int | None
    attempt: int = 0
