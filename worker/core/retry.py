"""What to do after an attempt without a result."""

from __future__ import annotations

import enum
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from worker.core.model import Verdict

if TYPE_CHECKING:
    from worker.core.model import Outcome


class Expire(NamedTuple):
    """Answer the request with ``EXPIRED``, because its deadline has passed."""


class Cancel(NamedTuple):
    """Answer the request with ``CANCELLED``, as was requested."""


class Settle(NamedTuple):
    """Settle the request, because another process has answered it."""


class Retry(NamedTuple):
    """Start the task again after this many seconds."""

    after: float


class DeadLetter(NamedTuple):
    """Send the request to the dead-letter topic and answer that."""


class Return(NamedTuple):
    """Do not answer and use no attempt: the task starts later, here or elsewhere."""


NextStep = Expire | Cancel | Settle | Retry | DeadLetter | Return

_FINAL: dict[Verdict, NextStep] = {
    Verdict.REJECTED: DeadLetter(),
    Verdict.EXPIRED: Expire(),
    Verdict.CANCELLED: Cancel(),
    Verdict.DONE: Settle(),
    Verdict.DROPPED: Return(),
    Verdict.NOT_STARTED: Return(),
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Allow ``max_attempts`` attempts, with a delay that doubles from ``first`` to ``greatest`` seconds."""

    max_attempts: int
    first: float
    greatest: float

    def delay(self, attempt: int, jitter: float) -> float:
        """Return the seconds to wait after attempt ``attempt``. ``jitter`` in [0, 1] removes up to half of them."""
        full = min(self.greatest, self.first * 2.0 ** min(attempt - 1, 60))
        return full * (1 - jitter / 2)


class End(enum.Enum):
    """How an attempt ended that gave no answer."""

    DIED = "its process died"
    FAILED = "an exception, a time limit, a memory limit"
    STOPPED = "a drain or a revocation"


def attempts_after(attempt: int, end: End, *, new_checkpoint: bool = False) -> int:
    """Return how many attempts count when attempt ``attempt`` has ended: the table in docs/checkpoints.md."""
    counts = end is End.FAILED or (end is End.DIED and not new_checkpoint)
    return attempt if counts else attempt - 1


def decide(outcome: Outcome, attempt: int, policy: RetryPolicy, jitter: float | None = None) -> NextStep:
    """Return the next step after attempt ``attempt``, which was not successful. ``jitter`` is drawn if not given."""
    final = _FINAL.get(outcome.verdict)
    if final is not None:
        return final
    if attempt >= policy.max_attempts:
        return DeadLetter()
    if outcome.retry_after is not None:
        return Retry(max(0.0, outcome.retry_after))
    return Retry(policy.delay(attempt, random.random() if jitter is None else jitter))  # noqa: S311 - jitter
