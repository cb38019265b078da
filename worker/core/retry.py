"""What follows a start of a task that brought no result: another attempt, the dead letters, or nothing."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

from worker.core.model import Outcome, Verdict


class Refuse(NamedTuple):
    """Answer the request with its expiry: it is too late for it."""


class Close(NamedTuple):
    """Settle the request: it has its answer."""


class Again(NamedTuple):
    """Start the task again after this many seconds."""

    after: float


class Bury(NamedTuple):
    """Send the request to the dead letters and answer that."""


class Forget(NamedTuple):
    """No answer and no attempt used: another start, here or elsewhere, will do it."""


Step = Refuse | Close | Again | Bury | Forget

REFUSE, CLOSE, BURY, FORGET = Refuse(), Close(), Bury(), Forget()


_FINAL: dict[Verdict, Step] = {
    Verdict.REJECTED: BURY,
    Verdict.EXPIRED: REFUSE,
    Verdict.DONE: CLOSE,
    Verdict.DROPPED: FORGET,
    Verdict.NOT_STARTED: FORGET,
}


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """``max_attempts`` starts, with a delay from ``first`` seconds doubling to ``greatest`` between them."""

    max_attempts: int
    first: float
    greatest: float

    def delay(self, attempt: int, jitter: float) -> float:
        """Seconds after the ``attempt``-th start failed; ``jitter`` in [0, 1] takes up to half of it away."""
        full = min(self.greatest, self.first * 2.0 ** min(attempt - 1, 60))
        return full * (1 - jitter / 2)


def decide(outcome: Outcome, attempt: int, policy: RetryPolicy, jitter: float | None = None) -> Step:
    """The next step after the ``attempt``-th start, which was no success. ``jitter`` is drawn if it is not given."""
    final = _FINAL.get(outcome.verdict)
    if final is not None:
        return final
    if attempt >= policy.max_attempts:
        return BURY
    if outcome.retry_after is not None:
        return Again(max(0.0, outcome.retry_after))
    return Again(policy.delay(attempt, random.random() if jitter is None else jitter))  # noqa: S311 - jitter
