"""What the demo checks in addition to the audit: that each answer is right, and that everything is committed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from examples.make_configurations import IMPOSSIBLE, configurations

if TYPE_CHECKING:
    from collections.abc import Iterable

    from examples.findings import Row
    from worker.core.model import Partition
    from worker.kafka.cluster import Cluster

FEW = 5  # exceptions that an error names


def problems(rows: list[Row], requests: int) -> list[str]:
    """Return the problems, one line each; empty if the proof holds."""
    table = configurations()
    answered = Counter(row["sequence"] for row in rows)
    impossible = {number for number, configuration in enumerate(table) if configuration in IMPOSSIBLE}
    outcomes = {row["sequence"]: row["outcome"] for row in rows}
    found = {
        "requests without an answer": set(range(requests)) - answered.keys(),
        "answers to unknown requests": answered.keys() - set(range(requests)),
        "requests answered more than once": {number for number, count in answered.items() if count > 1},
        "possible configurations without a result": {
            number for number, outcome in outcomes.items() if number not in impossible and outcome != "OK"
        },
        "impossible configurations that were not dead-lettered": {
            number for number in impossible if outcomes.get(number) != "DEAD_LETTERED"
        },
    }
    return [f"{len(bad)} {what}: {sorted(bad)[:FEW]}" for what, bad in found.items() if bad]


def lag(cluster: Cluster, group: str, partitions: Iterable[Partition]) -> int:
    """Return the number of requests that the group has not committed."""
    partitions = list(partitions)
    ends, committed = cluster.spans(partitions), cluster.committed(group, partitions)
    return sum(ends[place].end - (committed[place] or 0) for place in partitions)
