"""How many CPUs this container may use: what ``os.cpu_count()`` does not know."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from worker.supervisor.cgroup import MEMBERSHIP, ROOT, folders, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def available_cpus(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int:
    """The lesser of the CPU affinity and the least cgroup quota above this process, rounded up."""
    quotas = [*_quotas_v2(membership, root), *_quotas_v1(membership, root)]
    return min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)])


def _quotas_v2(membership: Path, root: Path) -> Iterator[float]:
    """CPUs, from ``cpu.max``: microseconds of a period, or ``max``."""
    for folder in folders("", membership, root):
        quota, _, period = read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)


def _quotas_v1(membership: Path, root: Path) -> Iterator[float]:
    """CPUs, from the two files of version 1; a quota of -1 means none."""
    for folder in folders("cpu", membership, root):
        quota, period = read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)
