"""Commands in separate processes, to be killed with all their descendants."""

from __future__ import annotations

import contextlib
import os
import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from tests.spark.support import archive

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

ROOT = Path(__file__).parents[3]
SECONDS = 60.0
# A JVM that lives for seconds does not benefit from the second compiler, a collector with many threads, or the check of
# Spark's classes. Measured from the start to three small jobs: half of the CPU time without them.
BRIEF = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:+UnlockDiagnosticVMOptions -XX:-BytecodeVerificationRemote"
    " -Dspark.ui.enabled=false"
)

# Spark uses all available CPU. The broker and the workers of parallel tests have time-outs, so Spark gets a third of
# their share. With less, it misses time-outs itself on a busy machine.
NICE = 5
AFTER_OTHERS = ("nice", "-n", str(NICE))

# The options of a driver: the archive is made for the class path of a driver.
DRIVER = BRIEF + archive.option()


class Victim(Enum):
    """The target of a ``kill -9``."""

    ALL = "driver, JVM and Python workers at once"
    DRIVER = "the driver's Python alone"
    JVM = "the JVM alone"
    WORKERS = "the Python workers alone"


class Program:
    """A running command and its descendants: Spark's JVM and its Python workers."""

    def __init__(self, command: Iterable[str], environment: Mapping[str, str], folder: Path) -> None:
        self._log = folder / "program.log"
        with self._log.open("ab") as log:
            variables = {"SPARK_SUBMIT_OPTS": DRIVER, "SPARK_DAEMON_JAVA_OPTS": BRIEF, **environment}
            self._process = psutil.Popen([*AFTER_OTHERS, *command], env=variables, cwd=folder, stdout=log, stderr=log)

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def family(self) -> list[psutil.Process]:
        """Return the process of the command and all its descendants, while it runs."""
        with contextlib.suppress(psutil.NoSuchProcess):
            return [self._process, *self._process.children(recursive=True)] if self.running else []
        return []

    def kill(self) -> int:
        """Send SIGKILL to the command and all its descendants. Return how many there were."""
        return kill(self.family())

    def strike(self, victim: Victim) -> None:
        """Send SIGKILL to these processes only, as soon as there are some. All others must then end by themselves.

        If the victims are the Python workers, the others need not end, because Spark starts new workers.
        """
        struck: list[psutil.Process] = []
        while not struck:
            family = self.family()
            assert family, f"it ended before it could be struck: {self.said()[-5_000:]}"
            struck = [process for process in family if victim in {Victim.ALL, self._role(process)}]
        kill(struck)
        if victim is not Victim.WORKERS:
            _, alive = psutil.wait_procs(family, SECONDS)
            assert not alive, f"{victim.value} died, and these live on: {alive}"

    def _role(self, process: psutil.Process) -> Victim | None:
        if process.pid == self._process.pid:
            return Victim.DRIVER
        with contextlib.suppress(psutil.NoSuchProcess):
            words = " ".join(process.cmdline())
            if "SparkSubmit" in words:
                return Victim.JVM
            if "pyspark.daemon" in words:
                return Victim.WORKERS
        return None

    def end(self, seconds: float) -> int:
        """Wait for the end of the command. Return its exit code."""
        return int(self._process.wait(seconds))

    def finish(self, seconds: float) -> str:
        """Wait for the end of the command. Return its output. The test fails unless the command succeeded."""
        code = self.end(seconds)
        said = self.said()
        assert code == 0, said[-5_000:]
        return said

    def said(self) -> str:
        return self._log.read_text(errors="replace")


def kill(processes: Iterable[psutil.Process]) -> int:
    """Send SIGKILL, and wait until the processes have ended. Return how many there were."""
    found = list(processes)
    for process in found:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    _, alive = psutil.wait_procs(found, SECONDS)
    assert not alive, alive
    return len(found)


def lower_priority(pid: int) -> None:
    """Lower the priority of a JVM that runs on behalf of this process, and of its later children."""
    value = max(NICE, os.getpriority(os.PRIO_PROCESS, pid))  # only root may raise a priority
    for thread in Path(f"/proc/{pid}/task").iterdir():  # each thread has a separate priority
        with contextlib.suppress(ProcessLookupError):
            os.setpriority(os.PRIO_PROCESS, int(thread.name), value)


@contextlib.contextmanager
def program(command: Iterable[str], environment: Mapping[str, str], folder: Path) -> Iterator[Program]:
    """Run a program, and remove all its processes at the end."""
    running = Program(command, environment, folder)
    try:
        yield running
    finally:
        running.kill()


def pipeline(*arguments: str) -> list[str]:
    """Return the command line of a job."""
    return [sys.executable, "-m", "pipeline", *arguments, "--progress", "off"]
