"""A standalone Spark cluster of a master and two workers on this machine."""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import time
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark

from pipeline.session import ROOT
from tests.ports import free_port
from tests.spark.support.programs import BRIEF, Program

if TYPE_CHECKING:
    from collections.abc import Iterator

    import psutil

SECONDS = 60.0
HOST = "127.0.0.1"
SPARK = Path(pyspark.__file__).parent
EXECUTOR = " ".join(option for option in BRIEF.split() if "spark." not in option)  # Spark refuses its own options there


class Cluster:
    """The cluster's address, and its processes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port = free_port()
        self.url = f"spark://{HOST}:{port}"
        self.environment = {
            **os.environ,
            "JAVA_HOME": str(ROOT / ".runtime/java"),
            "SPARK_HOME": str(SPARK),
            "SPARK_LOCAL_IP": HOST,
            "PYSPARK_PYTHON": sys.executable,
        }
        self._master = self._start("master", "master.Master", "--host", HOST, "--port", str(port), "--webui-port", "0")
        wait(port)
        options = ("--host", HOST, "--cores", "1", "--memory", "1g", "--webui-port", "0")
        self._workers = [
            self._start(name, "worker.Worker", *options, "--work-dir", str(folder / name), self.url)
            for name in ("first", "second")
        ]

    def _start(self, name: str, kind: str, *arguments: str) -> Program:
        folder = self.folder / f"{name}-log"
        folder.mkdir()
        command = [str(SPARK / "bin/spark-class"), f"org.apache.spark.deploy.{kind}", *arguments]
        return Program(command, self.environment, folder)

    def executors(self) -> list[psutil.Process]:
        """Return the executors' JVMs that run now."""
        family = [process for worker in self._workers for process in worker.family()]
        return [process for process in family if "CoarseGrainedExecutorBackend" in " ".join(_words(process))]

    def submit(self, folder: Path, *arguments: str) -> list[str]:
        """Return the command line of a job, as documented. The workers need no installed part of the project."""
        jars = sorted((ROOT / ".runtime" / f"spark-jars-{pyspark.__version__}").glob("*.jar"))
        return [
            str(SPARK / "bin/spark-submit"),
            *("--master", self.url, "--executor-memory", "512m", "--total-executor-cores", "2"),
            *("--conf", f"spark.driver.host={HOST}", "--conf", f"spark.executor.extraJavaOptions={EXECUTOR}"),
            *("--jars", ",".join(map(str, jars)), "--py-files", str(packed(folder))),
            *(str(ROOT / "pipeline/__main__.py"), *arguments, "--progress", "off"),
        ]

    def stop(self) -> None:
        for one in [*self._workers, self._master]:
            one.kill()


def _words(process: psutil.Process) -> list[str]:
    with contextlib.suppress(Exception):  # it has just ended
        return list(process.cmdline())
    return []


def packed(folder: Path) -> Path:
    """Write the project's two packages to a zip for the executors. Return its path."""
    path = folder / "pipeline.zip"
    with zipfile.ZipFile(path, "w") as archive:
        for package in ("pipeline", "worker"):
            for file in sorted((ROOT / package).rglob("*.py")):
                archive.write(file, file.relative_to(ROOT))
    return path


def wait(port: int) -> None:
    """Wait until a process listens on this port."""
    end = time.monotonic() + SECONDS
    while True:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.connect((HOST, port))
            return
        assert time.monotonic() < end, f"nobody listens on port {port}"
        time.sleep(0.1)


@contextlib.contextmanager
def standalone(folder: Path) -> Iterator[Cluster]:
    """Run a cluster. Stop it at the end."""
    cluster = Cluster(folder)
    try:
        yield cluster
    finally:
        cluster.stop()
