"""The endpoint of a program, and the distribution of requests over the partitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.broker import PARTITIONS

Partitioner = Callable[[int], tuple[bytes, int]]  # from the number of a request to its key and partition


class Endpoint(NamedTuple):
    """The broker's address, and the topics and group of a program. ``partitions`` are those of the request topic."""

    address: str
    request_topic: str
    ack_topic: str
    group: str
    partitions: int = PARTITIONS


def spread(partitions: int) -> Partitioner:
    """Return a partitioner with a different key for each request and the partitions in turn."""
    return lambda number: (b"%d" % number, number % partitions)


round_robin = spread(PARTITIONS)
