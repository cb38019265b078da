"""The duration of an audit: ``python -m benchmarks.spark audit``, or for other sizes and heaps:

``python -m benchmarks.spark.audit [--rows N] [--heap 2g] [--lake DIR]``.

It writes a synthetic manifest, requests and answers, and audits them in a new JVM: all that ``pipeline audit`` does,
except reading from Kafka. The lower bound is one scan of the columns that an audit needs. It runs second, with a warm
JVM and the files in the page cache.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import click
import psutil
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from benchmarks.figures import Figure
from benchmarks.spark.measure import CORES, ratio
from benchmarks.spark.synthetic import DOUBLED, MISSING, SENT, make, settings_of
from pipeline.audit import exceptions
from pipeline.audit.backlog import Backlog
from pipeline.audit.expected import expected_requests
from pipeline.audit.writer import Output
from pipeline.jobs.audit import examine
from pipeline.lake.bronze import Bronze
from pipeline.session import ROOT, build_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

NAME = "spark-audit"
GOAL = "audit"
HEAP = "2g"


def run(rows: int = 20_000_000, repetitions: int = 1) -> list[Figure]:
    """Return seconds and memory of an audit, and its ratio to one scan of its columns."""
    with tempfile.TemporaryDirectory(prefix="bench-audit-") as lake:
        _step("make", rows, HEAP, lake)
        results = [_step("audit", rows, HEAP, lake) for _ in range(repetitions)]
    quantity = f"{rows:,} requests"
    seconds = [result["audit_seconds"] for result in results]
    floor = [result["floor_seconds"] for result in results]
    memory = tuple(float(result["peak_rss_mib"]) for result in results)
    return [
        Figure(NAME, quantity, "pipeline", "s", tuple(seconds), GOAL),
        Figure(NAME, quantity, "floor", "s", tuple(floor)),
        Figure(NAME, f"{quantity}, heap of {HEAP}", "pipeline", "MiB RSS", memory),
        ratio(NAME, f"{quantity}, of the floor", seconds, floor, ""),
    ]


def _step(step: str, rows: int, heap: str, lake: str) -> dict[str, Any]:
    """Run a step in a separate process, so that the audit does not benefit from the memory of the first step."""
    command = [sys.executable, "-m", "benchmarks.spark.audit", "--rows", str(rows), "--heap", heap]
    done = subprocess.run([*command, "--lake", lake, "--step", step], check=True, stdout=subprocess.PIPE, cwd=ROOT)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", default=20_000_000, show_default=True, help="Requests of the job.")
@click.option("--heap", default=HEAP, show_default=True, help="Of the JVM that audits.")
@click.option("--lake", type=click.Path(path_type=Path), help="Keep the tables here, or take those that are here.")
@click.option("--step", type=click.Choice(["make", "audit"]), hidden=True)
def main(rows: int, heap: str, lake: Path | None, step: str | None) -> None:
    """Write the tables, audit them, and print the figures."""
    if step is not None:
        click.echo(json.dumps({"make": _make, "audit": _audit}[step](rows, heap, str(lake))))
        return
    with tempfile.TemporaryDirectory() as folder:
        for one in ("make", "audit"):
            click.echo(json.dumps(_step(one, rows, heap, str(lake or folder))))


def _session(heap: str) -> SparkSession:
    options = {"spark.driver.memory": heap, "spark.ui.enabled": "false"}
    return build_session("benchmark", master=f"local[{CORES}]", options=options)


def _make(rows: int, heap: str, lake: str) -> dict[str, Any]:
    """Write the tables unless they exist."""
    began = time.monotonic()
    if not Path(lake, "bronze").exists():
        spark = _session(heap)
        make(spark, lake, rows)
        spark.stop()
    return {"rows": rows, "made_seconds": round(time.monotonic() - began, 1)}


def _audit(rows: int, heap: str, lake: str) -> dict[str, Any]:
    """Audit the tables."""
    began = time.monotonic()
    spark, settings = _session(heap), settings_of(lake)
    ready = time.monotonic()
    with _Peak() as peak:
        output, bronze = Output(spark, settings), Bronze(spark, settings)
        requests = expected_requests(spark, settings, None)
        sent = spark.read.schema(SENT).parquet(f"{lake}/requests")
        findings = examine(settings, bronze, Backlog(), requests, lambda: sent, output)
        output.finish(findings)
    done = time.monotonic()
    counts = findings.counts
    assert (counts.planned, counts.missing, counts.duplicate) == (rows, MISSING, DOUBLED)
    result = {
        "rows": rows,
        "heap": heap,
        "session_seconds": round(ready - began, 1),
        "audit_seconds": round(done - ready, 1),
        "floor_seconds": round(_floor(requests.numbers, bronze.read()), 1),
        "peak_rss_mib": peak.mib,
        "verdict": findings.verdict.value,
        "missing": counts.missing,
        "duplicate": counts.duplicate,
        "failed": counts.failed,
        "out_of_order": counts.out_of_order,
    }
    spark.stop()
    return result


def _floor(numbers: DataFrame, answers: DataFrame) -> float:
    """Return the seconds of one pass over the numbers of all requests and the answer columns that an audit reads."""
    needed = ["kind", "job", "decode_error", "isprocessed", *exceptions.ANSWER, *exceptions.MEASURED]
    began = time.monotonic()
    for table in (numbers, answers.select(*needed)):
        table.agg(F.bit_xor(F.xxhash64(*table.columns))).collect()
    return time.monotonic() - began


class _Peak:
    """The peak memory of this process and its children (the JVM) together."""

    def __init__(self) -> None:
        self.mib = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        me = psutil.Process()
        while not self._over.wait(0.2):
            sizes = []
            for process in (me, *me.children(recursive=True)):
                try:
                    sizes.append(process.memory_info().rss)
                except psutil.NoSuchProcess:
                    continue
            self.mib = max(self.mib, sum(sizes) // 2**20)


if __name__ == "__main__":
    main()
