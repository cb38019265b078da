"""Uneven task lengths, and the best possible schedules of them. Pure."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SHORTEST, LONGEST = 0.005, 30.0  # seconds, of heavy-tailed lengths
SHAPE = 0.75  # of the Pareto distribution; below 1, the few long tasks are most of the work
LONG, SHARE_OF_LONG = 5.0, 0.01  # of bimodal lengths; all other tasks are as short as SHORTEST


def pareto(seed: int) -> Iterable[float]:
    """Yield heavy-tailed lengths without end."""
    drawn = random.Random(seed)
    while True:
        yield min(LONGEST, SHORTEST * drawn.paretovariate(SHAPE))


def bimodal(seed: int) -> Iterable[float]:
    """Yield lengths without end: one long task in each hundred, at a random position."""
    drawn = random.Random(seed)
    hundred = round(1 / SHARE_OF_LONG)
    while True:
        position = drawn.randrange(hundred)
        yield from (LONG if number == position else SHORTEST for number in range(hundred))


def take_seconds(lengths: Iterable[float], seconds: float) -> list[float]:
    """Return the first lengths that add up to that many seconds."""
    taken: list[float] = []
    total = 0.0
    for length in lengths:
        taken.append(length)
        total += length
        if total >= seconds:
            break
    return taken


def lower_bound(lengths: Sequence[float], processes: int) -> float:
    """Return the earliest end of any schedule: all work shared evenly, or the longest task."""
    return max(sum(lengths) / processes, *lengths)


def list_schedule(lengths: Sequence[float], processes: int) -> float:
    """Return the end of a greedy list schedule: the next task of one queue goes to the first idle process."""
    free = [0.0] * processes
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def zipf_keys(count: int, keys: int, seed: int) -> list[int]:
    """Return random keys. The n-th key is 1/n as frequent as the first."""
    return random.Random(seed).choices(range(keys), [1 / (number + 1) for number in range(keys)], k=count)


def by_key(keys: Sequence[int], partitions: int) -> Callable[[int], tuple[bytes, int]]:
    """Return a partitioner: the key of each request, and the partition of that key."""
    return lambda number: (b"%d" % keys[number], keys[number] % partitions)
