"""The log line of a task: one per answered request, sampled when there are many a second."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import structlog

from worker.core.model import ages, key_text
from worker.core.sampling import Sampler

if TYPE_CHECKING:
    from collections.abc import Sequence

    from worker.core.model import Outcome

LINES_PER_SECOND = 50  # of successes, and the same number of all others, so that failures remain visible

log = structlog.get_logger("task")


class TaskLog:
    """Write the log lines of one worker process. Used on the poll thread."""

    def __init__(self) -> None:
        self._successes = Sampler(LINES_PER_SECOND)
        self._others = Sampler(LINES_PER_SECOND)

    def finished(self, outcomes: Sequence[Outcome], name: str, now_ns: int) -> None:
        """Log that answers with the outcome ``name``, as on the wire, were confirmed just now."""
        sampler = self._successes if name == "OK" else self._others
        allowed = sampler.allow(len(outcomes), now_ns // 1_000_000_000)
        if allowed and sampler.suppressed:
            log.info("task.suppressed", count=sampler.suppressed)
            sampler.suppressed = 0
        shown = outcomes[:allowed]
        write = log.info if name == "OK" else log.warning
        for outcome, age in zip(shown, ages(shown, now_ns), strict=True):
            fields = _fields(outcome)
            if outcome.failure is not None and outcome.failure.traceback:
                fields["traceback"] = outcome.failure.traceback
            write("task.finished", **fields, outcome=name, settle=round(age, 6))

    def retrying(self, outcome: Outcome, after: float) -> None:
        """Log that the attempt failed and another follows."""
        if self._others.allow(1, int(time.time())):
            log.warning("task.retrying", **_fields(outcome), after=round(after, 3))

    @staticmethod
    def dropped(outcome: Outcome, reason: str) -> None:
        """Log that the result is not used."""
        log.warning("task.dropped", **_fields(outcome), reason=reason)


def _fields(outcome: Outcome) -> dict[str, object]:
    record = outcome.task.record
    fields: dict[str, object] = {
        "topic": record.partition.topic,
        "partition": record.partition.number,
        "offset": record.offset,
        "key": key_text(record.key),
        "sequence": outcome.sequence,
        "attempt": outcome.task.attempt,
        "run": round(outcome.run_seconds, 6),
        "cpu": round(outcome.cpu_seconds, 6),
    }
    if outcome.started_ns and record.timestamp_ms > 0:
        fields["wait"] = round(max(0.0, outcome.started_ns / 1e9 - record.timestamp_ms / 1e3), 6)
    if outcome.failure is not None:
        fields["error"] = f"{outcome.failure.type}: {outcome.failure.message}"
    return fields
