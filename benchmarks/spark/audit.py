"""The duration of an audit: ``python -m benchmarks.spark audit``, or for other sizes and heaps:

``python -m benchmarks.spark.audit [--rows N] [--heap 2g] [--order planned|shuffled] [--lake DIR]``.

It writes a synthetic manifest and synthetic answers, fills the ack topic of a broker with as many records, and audits
the job in a new JVM: all that ``pipeline audit`` does. The lower bound is one scan of the columns that an audit needs.
It runs second, with a warm JVM and the files in the page cache.
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

from benchmarks.broker import Broker
from benchmarks.figures import Figure
from benchmarks.spark import synthetic
from benchmarks.spark.measure import CORES, ratio
from pipeline.audit import exceptions
from pipeline.audit.expected import expected_requests
from pipeline.jobs.audit import audit
from pipeline.lake.bronze import Bronze
from pipeline.session import ROOT, build_session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import DataFrame, SparkSession

NAME = "spark-audit"
GOAL = "audit"
HEAP = "2g"
ORDERS = ("planned", "shuffled")
NOWHERE = "127.0.0.1:1"  # where no broker is, because writing the tables needs none


def run(rows: int = 20_000_000, repetitions: int = 6) -> list[Figure]:
    """Return seconds and memory of an audit, and its ratio to one scan of its columns, for each order of answers."""
    figures: list[Figure] = []
    for order in ORDERS:
        with tempfile.TemporaryDirectory(prefix="bench-audit-") as lake:
            results = list(_results(rows, HEAP, order, lake, repetitions))
        quantity = f"{rows:,} requests, answers {order}"
        seconds = [result["audit_seconds"] for result in results]
        floor = [result["floor_seconds"] for result in results]
        memory = tuple(float(result["peak_rss_mib"]) for result in results)
        figures += [
            Figure(NAME, quantity, "pipeline", "s", tuple(seconds), GOAL if order == "shuffled" else ""),
            Figure(NAME, quantity, "floor", "s", tuple(floor)),
            Figure(NAME, f"{quantity}, heap of {HEAP}", "pipeline", "MiB RSS", memory),
            ratio(NAME, f"{quantity}, of the floor", seconds, floor, ""),
        ]
    return figures


def _results(rows: int, heap: str, order: str, lake: str, repetitions: int) -> Iterator[dict[str, Any]]:
    """Yield the results of audits of the same tables, with a broker beside them."""
    _step("make", rows, heap, order, lake)
    with Broker() as broker:
        synthetic.fill(broker, rows)
        for _ in range(repetitions):
            yield _step("audit", rows, heap, order, lake, broker.address)


def _step(step: str, rows: int, heap: str, order: str, lake: str, address: str = NOWHERE) -> dict[str, Any]:
    """Run a step in a separate process, so that the audit does not benefit from the memory of the first step."""
    command = [sys.executable, "-m", "benchmarks.spark.audit", "--rows", str(rows), "--heap", heap, "--order", order]
    command += ["--lake", lake, "--step", step, "--address", address]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, cwd=ROOT)
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--rows", default=20_000_000, show_default=True, help="Requests of the job.")
@click.option("--heap", default=HEAP, show_default=True, help="Of the JVM that audits.")
@click.option("--order", type=click.Choice(ORDERS), default=ORDERS[0], show_default=True, help="Of the answers.")
@click.option("--lake", type=click.Path(path_type=Path), help="Keep the tables here, or take those that are here.")
@click.option("--step", type=click.Choice(["make", "audit"]), hidden=True)
@click.option("--address", default=NOWHERE, hidden=True)
def main(rows: int, heap: str, order: str, lake: Path | None, step: str | None, address: str) -> None:
    """Write the tables, audit them, and print the figures."""
    if step == "make":
        click.echo(json.dumps(_make(rows, heap, order, str(lake))))
    elif step == "audit":
        click.echo(json.dumps(_audit(rows, heap, str(lake), address)))
    else:
        with tempfile.TemporaryDirectory() as folder:
            for result in _results(rows, heap, order, str(lake or folder), 1):
                click.echo(json.dumps(result))


def _session(heap: str) -> SparkSession:
    options = {"spark.driver.memory": heap, "spark.ui.enabled": "false"}
    return build_session("benchmark", master=f"local[{CORES}]", options=options)


def _make(rows: int, heap: str, order: str, lake: str) -> dict[str, Any]:
    """Write the tables unless they exist."""
    began = time.monotonic()
    if not Path(lake, "bronze").exists():
        spark = _session(heap)
        synthetic.make(spark, synthetic.settings_of(lake, NOWHERE), rows, shuffled=order == "shuffled")
        spark.stop()
    return {"rows": rows, "made_seconds": round(time.monotonic() - began, 1)}


def _audit(rows: int, heap: str, lake: str, address: str) -> dict[str, Any]:
    """Audit the tables."""
    began = time.monotonic()
    spark, settings = _session(heap), synthetic.settings_of(lake, address)
    session = time.monotonic() - began
    synthetic.record(spark, settings)
    ready = time.monotonic()
    with _Peak() as peak:
        findings = audit(spark, settings)
    done = time.monotonic()
    counts = findings.counts
    assert (counts.planned, counts.missing, counts.duplicate) == (rows, synthetic.MISSING, synthetic.DOUBLED)
    assert all(one.state == "ok" for one in findings.evidence), findings.evidence
    requests, bronze = expected_requests(spark, settings, None), Bronze(spark, settings)
    result = {
        "rows": rows,
        "heap": heap,
        "session_seconds": round(session, 1),
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
