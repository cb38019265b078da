"""The measured machine and versions."""

from __future__ import annotations

import contextlib
import os
import platform
import re
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import confluent_kafka as ck
import psutil

from benchmarks import rabbit_server
from benchmarks.environments import JARS, PYTHON_PEERS, Environments, MissingError
from chaos import code_hash
from chaos.record import HASH_DIGITS

if TYPE_CHECKING:
    from benchmarks.bench import Bench


def common(bench: Bench) -> dict[str, str]:
    """Return the facts that all workloads of a run share. Missing peers are left out."""
    cores = len(os.sched_getaffinity(0))
    return {
        "machine": f"{processor()}, {cores} cores, "
        f"{psutil.virtual_memory().total / 2**30:.0f} GiB, Linux {platform.release()}",
        "versions": f"Python {platform.python_version()}, confluent-kafka {ck.__version__} "
        f"(librdkafka {ck.libversion()[0]}), protobuf {version('protobuf')}, Kafka {bench.broker.version}",
        **_peers(bench),
    }


def processor() -> str:
    """Return the processor's name, family and model. Virtual machines share one name for several generations."""
    found = dict(re.findall(r"^(.+?)\s*: (.+)$", Path("/proc/cpuinfo").read_text(encoding="utf-8"), re.MULTILINE))
    if "model name" not in found:  # not x86
        return platform.machine()
    return f"{found['model name']}, family {found.get('cpu family', '?')}, model {found.get('model', '?')}"


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
    with contextlib.suppress(MissingError):
        found["rabbitmq"] = rabbit_server.version(there.rabbitmq())
    return found


def section(command: str, seconds: float, others: float | None) -> dict[str, str]:
    """Return when and where a workload was measured, on which engine, and how many cores others used meanwhile.

    ``others`` is None if unknown. The engine is the git tree hash of ``worker/``.
    """
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "took": f"{seconds:.0f} s",
        "others took": "not known" if others is None else f"{others:.2f} cores",
        "processor": processor(),
        "engine": _hash("worker"),
        "pipeline": _hash("pipeline")[:HASH_DIGITS],
        "benchmarks": _hash("benchmarks")[:HASH_DIGITS],
        "command": command,
    }


def _hash(folder: str) -> str:
    try:
        return code_hash.tree_hash(folder)
    except RuntimeError:  # not a git checkout
        return "unknown"
