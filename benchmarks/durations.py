"""Task lengths that are uneven, and what scheduling can make of them at best. Pure."""

from __future__ import annotations

import heapq
import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

SHORTEST, LONGEST = 0.005, 30.0  # seconds, of the heavy-tailed ones
SHAPE = 0.75  # of the Pareto distribution; below 1 the few long tasks are most of the work
LONG, SHARE_OF_LONG = 5.0, 0.01  # of the bimodal ones; all others are as short as SHORTEST


def pareto(seed: int) -> Iterable[float]:
    """Heavy-tailed lengths without end."""
    drawn = random.Random(seed)
    while True:
        yield min(LONGEST, SHORTEST * drawn.paretovariate(SHAPE))


def bimodal(seed: int) -> Iterable[float]:
    """In each hundred one long task, at a random place."""
    drawn = random.Random(seed)
    hundred = round(1 / SHARE_OF_LONG)
    while True:
        place = drawn.randrange(hundred)
        yield from (LONG if number == place else SHORTEST for number in range(hundred))


def worth(lengths: Iterable[float], seconds: float) -> list[float]:
    """The first of them that together are so many seconds."""
    taken: list[float] = []
    total = 0.0
    for length in lengths:
        taken.append(length)
        total += length
        if total >= seconds:
            break
    return taken


def lower_bound(lengths: Sequence[float], processes: int) -> float:
    """No schedule is done before: all work shared evenly, or the longest task."""
    return max(sum(lengths) / processes, *lengths)


def list_schedule(lengths: Sequence[float], processes: int) -> float:
    """When greedy list scheduling is done: the next task of one queue goes to whoever is idle first."""
    free = [0.0] * processes
    for length in lengths:
        heapq.heapreplace(free, free[0] + length)
    return max(free)


def zipf_keys(count: int, keys: int, seed: int) -> list[int]:
    """Keys, the n-th of them 1/n as frequent as the first."""
    return random.Random(seed).choices(range(keys), [1 / (number + 1) for number in range(keys)], k=count)


def dealt(keys: Sequence[int], partitions: int) -> Callable[[int], tuple[bytes, int]]:
    """For each request its key and the partition of that key."""
    return lambda number: (b"%d" % keys[number], keys[number] % partitions)
