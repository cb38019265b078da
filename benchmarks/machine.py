"""Where and with what it was measured."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka as ck
import psutil

from benchmarks.broker import ROOT
from benchmarks.environments import JARS, PYTHON_PEERS, Environments, MissingError

if TYPE_CHECKING:
    from benchmarks.bench import Bench


def common(bench: Bench) -> dict[str, str]:
    """What all workloads of a run have in common. Peers that are not there are left out."""
    model = re.search(r"model name\s*: (.+)", Path("/proc/cpuinfo").read_text(encoding="utf-8"))
    cores = len(os.sched_getaffinity(0))
    return {
        "machine": f"{model[1] if model else platform.machine()}, {cores} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, Linux {platform.release()}",
        "versions": f"Python {platform.python_version()}, confluent-kafka {ck.__version__} "
        f"(librdkafka {ck.libversion()[0]}), protobuf {version('protobuf')}, Kafka {bench.broker.version}",
        **_peers(bench),
    }


def _peers(bench: Bench) -> dict[str, str]:
    found = {}
    there = Environments(fetch=False)
    for name in PYTHON_PEERS:
        try:
            found[name] = there.versions(name)
        except MissingError:
            continue
    try:
        there.classpath()
    except MissingError:
        pass
    else:
        found["parallel-consumer"] = ", ".join(f"{module} {revision}" for _, module, revision in JARS)
    with contextlib.suppress(MissingError):
        there.redis()
        found["redis"] = bench.redis.version
    return found


def piece(command: str, seconds: float, others: float) -> dict[str, str]:
    """When one workload was measured, and how many cores were busy with other things meanwhile.

    The engine is told by a hash of its sources.
    """
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "took": f"{seconds:.0f} s",
        "others took": f"{others:.2f} cores",
        "engine": _engine(),
        "command": command,
    }


def _engine() -> str:
    digest = hashlib.sha256()
    for path in sorted((ROOT / "worker").rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:8]
