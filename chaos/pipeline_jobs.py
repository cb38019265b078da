"""Spark's ``pipeline submit``, ``collect`` and ``audit`` of one table, called again until they succeed."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

from chaos import procutil
from chaos.cluster import until
from chaos.evidence import Audit, Call
from chaos.messages import job_key, request
from chaos.requests import OTHER_JOB, TABLE_JOB, token_of

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Collection, Mapping
    from pathlib import Path

ROWS = 300
CALL_SECONDS = 600.0  # for one call of a command
END_SECONDS = 60.0  # for Spark's JVM to end after its driver
# About 15 s of sending, in transactions of a second each, so that faults hit it.
_SUBMIT = ("--id", "id", "--payload", "payload", "--parts", "4", "--rate", "20")
# Two tasks at a time, and as little start-up as possible. Replicas and brokers come first.
_NICE = ("nice", "-n", "5")
_MASTER = "local[2]"
_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dspark.ui.enabled=false -Dspark.sql.shuffle.partitions=2"


class PipelineJobs:
    """The calls of the pipeline, which connects as the first replica does: faults hit it as well.

    Set ``healed`` when there are no faults any more. ``rows`` maps the key of each row's request to the request.
    """

    def __init__(self, environment: Mapping[str, str], run: str, folder: Path) -> None:
        self.healed = False
        self.rows = {job_key(TABLE_JOB, n): request(n, _payload(n)) for n in range(ROWS)}
        self.calls: list[Call] = []
        self.collected: list[tuple[str, int, int]] = []  # the records in bronze: topic, partition and offset
        self.audit: Audit | None = None
        self.failed: list[str] = []  # expectations that were not met
        self._folder, self._lake, self._table = folder, folder / "lake", folder / "table.jsonl"
        self._environment = {**environment, **_spark(folder), procutil.MARKER: run}
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False
        self._table.write_text("".join(json.dumps({"id": n, "payload": _payload(n)}) + "\n" for n in range(ROWS)))
        # All other requests belong to another job of the lake, which has a manifest.
        (self._lake / f"manifest/job={OTHER_JOB}").mkdir(parents=True)

    async def work(self) -> None:
        """Submit until that succeeds, then collect again and again until all is healed."""
        await self._repeat("submit", "--input", str(self._table), *_SUBMIT)
        while not self.healed:
            await self._repeat("collect", "--available-now")

    async def judge(self) -> None:
        """Collect the rest, and audit."""
        await self._repeat("collect", "--available-now")
        self.collected = _bronze(self._lake)
        call = await self._call("audit")
        file = self._lake / f"audit/job={TABLE_JOB}/audit.json"
        found = json.loads(file.read_text()) if file.exists() else {}
        counts = {name: value for name, value in found.items() if type(value) is int}
        self.audit = Audit(call.code, found.get("verdict", call.last), counts)

    async def _repeat(self, command: str, *options: str) -> None:
        """Call a command until it succeeds, as a scheduler would do. Without faults it has one try."""
        while True:
            call = await self._call(command, *options)
            self.calls.append(call)
            if call.code == 0 or call.healed:
                return

    async def _call(self, command: str, *options: str) -> Call:
        """Call a command. Return when none of its processes is left. Raise TimeoutError if it does not end."""
        healed, self._killed = self.healed, False
        log = self._folder / f"pipeline-{len(self.calls)}-{command}.log"
        common = ("--job", TABLE_JOB, "--lake", str(self._lake), "--master", _MASTER, "--progress", "off")
        arguments = [*_NICE, sys.executable, "-P", "-m", "pipeline", command, *common, *options]
        process = self._process = procutil.start(arguments, self._environment, log)
        await until(lambda: process.poll() is not None, f"pipeline {command} has not ended, see {log}", CALL_SECONDS)
        try:
            await until(lambda: not procutil.session(process.pid), "", END_SECONDS)
        except TimeoutError:
            self.failed.append(f"processes outlive their pipeline {command}, see {log}")
            self.close()
        lines = log.read_text(errors="replace").splitlines()
        return Call(command, process.wait(), self._killed, healed, lines[-1] if lines else "")

    def kill(self, number: int) -> bool:
        """Send SIGKILL to a process of the driver: its Python process or its JVM. Return False if none runs."""
        halves = self._processes()[:2]
        if not halves:
            return False
        self._killed = True
        procutil.send([halves[number % len(halves)]], signal.SIGKILL)
        return True

    def connected(self, ports: Collection[int]) -> bool:
        """Return whether a process of the driver that runs is connected to one of these ports."""
        return any(not procutil.remote_ports(pid).isdisjoint(ports) for pid in self._processes())

    def _processes(self) -> list[int]:
        """Return the processes of the driver that runs: Python's, the JVM, and those of Spark's tasks."""
        if self._process is None or self._process.poll() is not None:
            return []
        return procutil.session(self._process.pid)

    def close(self) -> None:
        """Kill all remaining processes."""
        if self._process is not None:
            procutil.send(procutil.session(self._process.pid), signal.SIGKILL)
            self._process.wait()


def _bronze(lake: Path) -> list[tuple[str, int, int]]:
    """Return the place of each record in bronze. Files whose names begin with _ or . do not belong to it."""
    import pyarrow.parquet as pq  # noqa: PLC0415 - most runs do not need it

    found: list[tuple[str, int, int]] = []
    for file in lake.glob("bronze/**/*.parquet"):
        if not any(part.startswith(("_", ".")) for part in file.relative_to(lake).parts):
            table = pq.read_table(file, columns=["topic", "partition", "offset"], partitioning=None)
            found += zip(*(column.to_pylist() for column in table.columns), strict=True)
    return found


def _payload(number: int) -> str:
    return json.dumps({"do": "echo", "seconds": 0.005, "token": token_of(number)})


def _spark(folder: Path) -> dict[str, str]:
    """Return the environment of a small Spark, whose files are in the folder of the run even if it is killed."""
    temporary = folder / "spark"
    temporary.mkdir()
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(procutil.ROOT),
        "SPARK_DRIVER_MEMORY": "768m",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_LOCAL_DIRS": str(temporary),
        "SPARK_SUBMIT_OPTS": f"{_JAVA} -Djava.io.tmpdir={temporary}",
        "TMPDIR": str(temporary),
    }
