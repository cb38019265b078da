"""The programs under measurement as processes: started together, looked at from outside, stopped together."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import tempfile
import time
from typing import TYPE_CHECKING, NamedTuple, Self

import psutil

from benchmarks.broker import PARTITIONS, ROOT
from benchmarks.contest import BARE, SIMPLE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.traffic import Place

PROCESSES = 2  # of every program: one for each core of the machine that the numbers were set for
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_STOP_SECONDS = 30.0
_LOOK_SECONDS = 1.0  # between two searches for new children; they cost milliseconds


def stop_with_parent() -> None:
    """Ask the kernel for SIGTERM when the suite ends, however it does."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class EndedError(Exception):
    """A program under measurement ended by itself, with this exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Memory(NamedTuple):
    """Of one process, in bytes. ``pss`` counts a page that n processes share as 1/n."""

    pss: int
    rss: int


class Program:
    """Use it as a context: the processes run inside. What they print goes to a file that is shown if one ends."""

    def __init__(self, name: str, commands: Sequence[Sequence[str]], environment: dict[str, str]) -> None:
        self.name = name
        self._commands = commands
        self._environment = environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self._seen: dict[int, psutil.Process] = {}
        self._looked = 0.0

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self.started_at = time.time()
        self._processes = [
            subprocess.Popen(
                command,
                env=self._environment,
                cwd=ROOT,
                stdout=self._log,
                stderr=self._log,
                preexec_fn=stop_with_parent,  # noqa: PLW1509 - it makes one system call
            )
            for command in self._commands
        ]
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for process in self._processes:
            try:
                process.wait(max(0.1, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self._kill()
        self._log.close()

    def _kill(self) -> None:
        print(f"{self.name} did not stop within {_STOP_SECONDS:g} s and was killed", file=sys.stderr)
        for process in self._tree():
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for each in self._processes:
            each.wait()

    def check(self) -> None:
        """Raise EndedError if a process has ended."""
        for process in self._processes:
            if process.poll() is not None:
                code = process.returncode
                raise EndedError(f"{self.name} ended with exit code {code}: {self.last_words()}", code)

    def last_words(self, lines: int = 1) -> str:
        """The end of what its processes have printed."""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return "\n".join(text.splitlines()[-lines:]) or "it said nothing"

    def _tree(self) -> list[psutil.Process]:
        """The processes started here and all below them."""
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            for process in self._processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    parent = psutil.Process(process.pid)
                    for each in (parent, *parent.children(recursive=True)):
                        self._seen.setdefault(each.pid, each)
        return list(self._seen.values())

    def cpu_seconds(self) -> float:
        """What all processes of the program have used so far."""
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def pids(self) -> list[int]:
        """Of all its processes, as they are now."""
        self._looked = 0.0
        return [process.pid for process in self._tree()]

    def pss(self) -> list[int]:
        """Bytes of each of its processes. A page that n processes share counts 1/n."""
        self._looked = 0.0
        found = []
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                found.append(process.memory_full_info().pss)
        return found

    def memory(self) -> dict[int, Memory]:
        """Of every process that runs tasks, by its pid; not of a supervisor."""
        self._looked = 0.0
        found = {}
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                if _runs_tasks(process):
                    info = process.memory_full_info()
                    found[process.pid] = Memory(info.pss, info.rss)
        return found


def _runs_tasks(process: psutil.Process) -> bool:
    command = " ".join(process.cmdline())
    return "spawn_main" in command or "benchmarks.peers" in command


def worker(place: Place, handler: str, **settings: str) -> Program:
    """The worker with default settings but for those given, by the names of its variables."""
    variables = {
        "WORKER_HANDLER": f"benchmarks.handlers:{handler}",
        "WORKER_PROCESSES": str(PROCESSES),
        "WORKER_HTTP_PORT": "0",
        "WORKER_LOG_FORMAT": "json",
        **settings,
    }
    return Program("worker", [[sys.executable, "-P", "-m", "worker", "run"]], environment(place, variables))


def peer(name: str, place: Place, handler: str = "nothing") -> Program:
    """``bare`` or ``simple``, in as many processes as the worker, the partitions dealt out among them."""
    shares = [",".join(map(str, range(PARTITIONS)[number::PROCESSES])) for number in range(PROCESSES)]
    commands = [[sys.executable, "-P", "-m", "benchmarks.peers", name, share] for share in shares]
    return Program(PEERS[name], commands, environment(place, {"BENCH_HANDLER": handler}))


PEERS = {"bare": BARE, "simple": SIMPLE}


def environment(place: Place, more: dict[str, str]) -> dict[str, str]:
    """The caller's environment without any setting of a worker, with these instead."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "WORKER_"))}
    return {
        **inherited,
        "PYTHONPATH": str(ROOT),
        "KAFKA_BOOTSTRAP_SERVER": place.address,
        "KAFKA_REQUEST_TOPIC": place.request_topic,
        "KAFKA_ACK_TOPIC": place.ack_topic,
        "KAFKA_CONSUMER_GROUP_ID": place.group,
        **more,
    }
