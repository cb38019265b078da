"""``pipeline run`` of a small table whose requests are answered at once, and how much of that is Spark's own start."""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.broker import ROOT, Broker
from benchmarks.endpoint import Endpoint
from benchmarks.figures import Figure
from benchmarks.processes import worker
from benchmarks.traffic import Reader, warm_up

if TYPE_CHECKING:
    from collections.abc import Mapping

NAME = "spark-run"
# Spark with its defaults, without this project: a session, and one job that writes a table.
_SPARK_ALONE = """
import sys
from pyspark.sql import SparkSession
spark = SparkSession.builder.config("spark.ui.enabled", "false").getOrCreate()
spark.range(200).write.parquet(sys.argv[1])
"""


def run(rows: int = 200, repetitions: int = 6) -> list[Figure]:
    """Return the seconds of ``pipeline run`` and of Spark alone, and their CPU seconds."""
    ours, alone = [], []
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="bench-run-") as folder:
        table = f"{folder}/in.parquet"
        pq.write_table(pa.table({"id": range(rows), "payload": [f"configuration {n}" for n in range(rows)]}), table)
        for number in range(repetitions):
            alone.append(_timed([sys.executable, "-c", _SPARK_ALONE, f"{folder}/alone-{number}"], {}))
            endpoint = Endpoint(broker.address, f"requests-{number}", f"acks-{number}", f"group-{number}")
            for topic in endpoint[1:3]:
                broker.create(topic)
            program = worker(endpoint, "nothing")
            with contextlib.closing(Reader(endpoint, program)) as reader, program:
                warm_up(endpoint, reader)
                arguments = ["--job", "bench", "--lake", f"{folder}/lake-{number}", "--input", table]
                command = [sys.executable, "-P", "-m", "pipeline", "run", *arguments]
                ours.append(_timed([*command, "--id", "id", "--payload", "payload"], program.environment))
    quantity = f"{rows} requests, answered at once"
    return [
        Figure(NAME, quantity, "pipeline", "s", tuple(seconds for seconds, _ in ours)),
        Figure(NAME, f"{quantity}: CPU", "pipeline", "s", tuple(cpu for _, cpu in ours)),
        Figure(NAME, "a session and one job", "Spark", "s", tuple(seconds for seconds, _ in alone)),
        Figure(NAME, "a session and one job: CPU", "Spark", "s", tuple(cpu for _, cpu in alone)),
    ]


def _timed(command: list[str], variables: Mapping[str, str]) -> tuple[float, float]:
    """Run a command. Return its seconds, and the CPU seconds of it and all its descendants."""
    environment = {**os.environ, **variables, "JAVA_HOME": str(ROOT / ".runtime/java"), "PYTHONPATH": str(ROOT)}
    began, cpu = time.monotonic(), {}
    with tempfile.TemporaryFile() as output:
        process = psutil.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output)
        while process.poll() is None:
            # The JVM outlives the command for a moment, and nobody waits for it: so its CPU time is read while it runs.
            for one in (process, *_children(process)):
                with contextlib.suppress(psutil.Error):
                    cpu[one.pid] = sum(one.cpu_times()[:2])
            time.sleep(0.1)
        seconds = time.monotonic() - began
        if process.returncode != 0:
            output.seek(0)
            raise RuntimeError(f"exit code {process.returncode}: {output.read().decode(errors='replace')[-2000:]}")
    return seconds, sum(cpu.values())


def _children(process: psutil.Process) -> list[psutil.Process]:
    with contextlib.suppress(psutil.Error):
        return process.children(recursive=True)
    return []
