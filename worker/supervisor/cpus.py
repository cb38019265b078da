"""The number of CPUs that this container may use, which ``os.cpu_count()`` does not return."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING

from worker.supervisor.cgroup import MEMBERSHIP, ROOT, folders, read

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


def available_cpus(membership: Path = MEMBERSHIP, root: Path = ROOT) -> int:
    """Return the CPU affinity or the smallest cgroup quota of this process, whichever is less, rounded up."""
    quotas = [*_quotas_v2(membership, root), *_quotas_v1(membership, root)]
    return min([len(os.sched_getaffinity(0)), *map(math.ceil, quotas)])


def _quotas_v2(membership: Path, root: Path) -> Iterator[float]:
    """Yield CPUs from ``cpu.max``: microseconds per period, or ``max``."""
    for folder in folders("", membership, root):
        quota, _, period = read(folder / "cpu.max").partition(" ")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)


def _quotas_v1(membership: Path, root: Path) -> Iterator[float]:
    """Yield CPUs from the two files of version 1; a quota of -1 means none."""
    for folder in folders("cpu", membership, root):
        quota, period = read(folder / "cpu.cfs_quota_us"), read(folder / "cpu.cfs_period_us")
        if quota.isdigit() and period.isdigit():
            yield int(quota) / int(period)
