"""A page of memory that parent and child share, to exchange values without system calls.

Every word has 8 bytes and one writer. A child with corrupted memory may write anything into it, so the parent uses it
only as a hint about which task is running.
"""

from __future__ import annotations

import mmap
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from worker.core.limits import Reason

SIZE = 4096
# Written by the child: the number of the task that started last, and its start in monotonic nanoseconds.
STARTED, STARTED_AT = 0, 1
# Written by the child: the number of the task whose handler has ended last; its report may still be to come.
ENDED = 2
# Written by the parent: the child starts no task from SKIP_FROM up to but not including SKIP_UNTIL.
SKIP_FROM, SKIP_UNTIL = 8, 9
# Written by the parent: the number of the task that should stop, and why (an index of REASONS, written first).
CANCELLED, REASON = 10, 11
REASONS: tuple[Reason, ...] = ("revoked", "drain", "deadline", "requested", "timeout")


def words(descriptor: int) -> memoryview:
    """Return the page of a descriptor as words. The descriptor may be closed afterwards."""
    return memoryview(mmap.mmap(descriptor, SIZE)).cast("Q")
