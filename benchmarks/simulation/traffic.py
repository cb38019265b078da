"""Requests: their times, lengths and partitions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from benchmarks.simulation.group import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from random import Random


class Lengths(NamedTuple):
    """A distribution of task lengths. ``draw`` returns seconds, ``mean`` is the mean of the distribution."""

    name: str
    draw: Callable[[Random], float]
    mean: float


def bounded_pareto(alpha: float, least: float, most: float, name: str) -> Lengths:
    """Return a power law between two lengths."""
    share = 1 - (least / most) ** alpha
    scale = alpha * least**alpha / (1 - alpha) / share
    mean = scale * (most ** (1 - alpha) - least ** (1 - alpha))
    return Lengths(name, lambda random: least * (1 - random.random() * share) ** (-1 / alpha), mean)


def mixture(short: float, long: tuple[float, float], share: float, name: str) -> Lengths:
    """Return tasks of one short length, with a share of long ones of any length in a range."""
    mean = (1 - share) * short + share * sum(long) / 2
    return Lengths(name, lambda random: random.uniform(*long) if random.random() < share else short, mean)


# The shape of jobs in Google's Borg: Tirmazi et al., EuroSys 2020, fit the CPU time of jobs by a power law of 0.69.
BORG = bounded_pareto(0.69, 0.1, 3600, "power law 0.69, 0.1 s to 1 h")
MIXED = mixture(0.5, (600, 1800), 0.01, "0.5 s, and 1 % of 10 to 30 min")


def poisson(random: Random, lengths: Lengths, rate: float, until: float, partitions: int) -> Iterator[Request]:
    """Yield ``rate`` requests per second at random times, over all partitions."""
    now = random.expovariate(rate)
    while now < until:
        yield Request(now, lengths.draw(random), random.randrange(partitions))
        now += random.expovariate(rate)


def as_measured(random: Random, rate: float, until: float, partitions: int) -> Iterator[Request]:
    """Yield the requests of the study's load generator: 1.2 % of 20 to 40 s among tasks of 20 ms, evenly spaced."""
    for number in range(int(rate * until) - 1):
        seconds = random.uniform(20, 40) if random.random() < 0.012 else 0.02  # noqa: PLR2004 - its settings
        yield Request(number / rate, seconds, random.randrange(partitions))
