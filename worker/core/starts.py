"""How many tasks to hand over, and what must be known of their start before: pure rules, see docs/decisions/0065."""

from __future__ import annotations

from typing import NamedTuple

# Tasks from this length on start one by one, each noted before: the two milliseconds that takes are nothing to them,
# and what a process dies of is then known for sure.
EXACT_SECONDS = 1.0
ROUND_TRIPS = 100  # of a commit within such a task, at least: a broker far away must not cost more
MOST_FURTHER = 2_048
# From this length on the next tasks are handed over while one still runs. Shorter ones go in lockstep: two threads at
# once would only fight for the interpreter lock, and every delivery report has to take it.
OVERLAP_SECONDS = 0.002


class Starts(NamedTuple):
    """``limit`` tasks at a time while the service has less than ``ahead``.

    ``free``: they need not wait for their permits; ``alone``: nothing is handed over beside a task; ``strict``: nor
    before the answer to the one before is certain; ``one_lane``: a lot is of one partition; ``further``: so many more
    permits than usual are asked for.
    """

    limit: int
    ahead: int
    free: bool = False
    alone: bool = False
    strict: bool = False
    one_lane: bool = False
    further: int = 0


def of_singles(*, chunk: int, seconds: float, round_trip: float, idle: bool, strict: bool, free: bool) -> Starts:
    """For a handler that takes tasks one by one, which take ``seconds``: ``chunk`` of them are about 50 ms.

    A commit takes ``round_trip`` seconds. ``strict``: every start must be counted exactly. ``free``: permits are not to
    be had just now.
    """
    if strict or seconds >= max(EXACT_SECONDS, ROUND_TRIPS * round_trip):
        return Starts(1, 1, alone=True, strict=strict, free=free and not strict)
    # A short task of a process with nothing else to do starts at once and is noted at the same time: the round trip
    # would be most of its latency. What it may cost is one start that is not counted.
    further = min(MOST_FURTHER, int(2 * round_trip / max(seconds, 1e-6)))
    return Starts(chunk, 2 if seconds >= OVERLAP_SECONDS else 1, free=free or (idle and chunk > 1), further=further)


def of_batches(*, size: int, one_lane: bool, free: bool) -> Starts:
    """For a handler that takes ``size`` tasks at a time."""
    return Starts(size, 1, one_lane=one_lane, free=free)
