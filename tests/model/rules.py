"""The worker's decisions about detached tasks, for the model's statuses: the code that the worker itself runs."""

from __future__ import annotations

from functools import cache

from tests.model.state import GONE, HELD, LOOKED, MARK_RELEASED, MARK_SETTLED, VACATED, VACATING
from worker.core.commit_metadata import CommitMetadata, Detached, encode
from worker.core.detached import (
    UNKNOWN,
    DetachedClaim,
    Step,
    holder_of,
    next_step,
    read_mark,
    released_mark,
    settled_mark,
)
from worker.core.lease import Lease
from worker.core.model import Partition

PLACE, OFFSET, ATTEMPT = Partition("requests", 0), 5, 1


def _holder(status: int) -> str:
    """Return the name of the holder in the metadata. A holder that is gone or vacated has had a name, too."""
    return holder_of(f"{max(status - HELD, 0):08x}", 1)


def _claim(status: int) -> DetachedClaim:
    return DetachedClaim(Lease(PLACE), OFFSET, ATTEMPT, _holder(status))


def _entry(status: int) -> Detached:
    return Detached(ATTEMPT, _holder(status), vacated=status in {VACATED, VACATING, LOOKED})


@cache
def is_named(status: int, process: int) -> bool:
    """Return whether the committed status of a request allows this process to commit its answer."""
    is_entry = status >= GONE or status in {VACATED, VACATING, LOOKED}
    metadata = CommitMetadata(detached={OFFSET: _entry(status)} if is_entry else {})
    name = _claim(HELD + process)
    return status != GONE and name.is_named_by((OFFSET, encode(metadata, OFFSET)))


@cache
def step_of_owner(status: int, mark: int, *, pending: bool, missing: bool) -> Step:
    """Return the owner's next step for a request with an entry."""
    claim, task = _claim(status), _entry(status)
    left = {MARK_SETTLED: settled_mark(claim), MARK_RELEASED: released_mark(claim, ATTEMPT, 0)}.get(mark)
    seen = UNKNOWN if pending and not mark else read_mark(task, left)
    return next_step(task, seen, missing=missing, recorded=status != VACATING)
