"""The pipeline's benchmarks, each in a separate process, because each has a JVM."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.broker import ROOT
from benchmarks.figures import Figure
from benchmarks.processes import stop_with_parent

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.bench import Bench

PARTS = ("codec", "submit", "run", "audit")  # their names in `python -m benchmarks.spark`
_SECONDS = 2_400.0  # the audit takes 2.5 minutes for each repetition


def workloads() -> dict[str, Callable[[Bench], list[Figure]]]:
    """Return a workload for each part."""
    return {f"pipeline-{part}": functools.partial(run, part) for part in PARTS}


def run(part: str, _bench: Bench) -> list[Figure]:
    """Return the figures of a part, under the name of its workload here."""
    with tempfile.TemporaryDirectory(prefix="bench-pipeline-") as folder:
        results, log = Path(folder, "results.json"), Path(folder, "log")
        with log.open("wb") as output:
            done = subprocess.run(
                [sys.executable, "-P", "-m", "benchmarks.spark", part, "--json", str(results)],
                cwd=ROOT,
                check=False,
                stdout=output,
                stderr=output,
                timeout=_SECONDS,
                preexec_fn=stop_with_parent,
            )
        if done.returncode != 0:
            last = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
            raise RuntimeError(f"exit code {done.returncode}: {''.join(last) or 'it said nothing'}")
        return figures(part, results.read_text(encoding="utf-8"))


def figures(part: str, text: str) -> list[Figure]:
    """Return the figures that a part has written."""
    return [
        Figure(**{**each, "workload": f"pipeline-{part}", "values": tuple(each["values"])}) for each in json.loads(text)
    ]
