"""Rules for how many tasks to give to the executor, and which starts must be recorded first."""

from __future__ import annotations

from typing import NamedTuple

# Tasks of at least this length start one by one, and each start is recorded first. That takes two milliseconds, which
# do not matter to such tasks, and after a crash it is certain which task was running.
EXACT_SECONDS = 1.0
ROUND_TRIPS = 100  # such a task lasts at least this many commits, so that a distant broker does not cost more
MAX_FURTHER = 2_048
# For tasks of at least this length, the next ones are dispatched while one still runs. Shorter tasks alternate with the
# poll thread: two threads at once would only compete for the interpreter lock, which every delivery report needs too.
OVERLAP_SECONDS = 0.002


class DispatchRule(NamedTuple):
    """Dispatch ``limit`` tasks at a time while the executor has fewer than ``ahead``.

    If ``unlimited``, tasks need not wait for a commit that records their start, unless it follows a failure. If
    ``at_once``, this applies only to first starts, and only of requests that no previous owner can have started. If
    ``alone``, nothing is dispatched beside a task. If ``strict``, the answer to the previous task must be confirmed
    too. If ``one_partition``, tasks that are dispatched together come from one partition. ``further`` is the number of
    extra starts to request ahead.
    """

    limit: int
    ahead: int
    unlimited: bool = False
    at_once: bool = False
    alone: bool = False
    strict: bool = False
    one_partition: bool = False
    further: int = 0


def rule_for_singles(
    *, chunk: int, seconds: float, round_trip: float, idle: bool, strict: bool, unlimited: bool, apart: bool = False
) -> DispatchRule:
    """Return the rule for a handler of single tasks. Tasks last ``seconds``; ``chunk`` of them are about 50 ms.

    ``round_trip`` is the duration of a commit in seconds. If ``strict``, every start must be counted exactly. If
    ``unlimited``, commits are not possible now. If ``apart``, tasks run in another process and do not compete for the
    interpreter lock, so the next chunk should be there when one ends.
    """
    if strict or seconds >= max(EXACT_SECONDS, ROUND_TRIPS * round_trip):
        return DispatchRule(1, 1, alone=True, strict=strict, unlimited=unlimited and not strict)
    # In an idle process a short task starts at once, while its start is being recorded: waiting for the commit would be
    # most of its latency. The price is that a crash within this millisecond is not counted. The next owner of the
    # partition records the same start first, so a task that always crashes gets one start more than its limit.
    further = min(MAX_FURTHER, int(2 * round_trip / max(seconds, 1e-6)))
    ahead = 2 if seconds >= OVERLAP_SECONDS else chunk if apart else 1
    return DispatchRule(chunk, ahead, unlimited=unlimited, at_once=idle and chunk > 1, further=further)


def rule_for_batches(*, size: int, one_partition: bool, unlimited: bool, strict: bool = False) -> DispatchRule:
    """Return the rule for a handler that takes ``size`` tasks at a time. If ``strict``, no start is recorded ahead."""
    unlimited = unlimited and not strict
    return DispatchRule(size, 1, one_partition=one_partition, unlimited=unlimited, strict=strict)
