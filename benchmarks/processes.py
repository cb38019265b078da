"""The processes of a measured program, which start, are observed, and stop together."""

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
from benchmarks.names import BARE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.endpoint import Endpoint

PROCESSES = 2  # of every program: one for each core of the reference machine
_LIBC = ctypes.CDLL(None)
_PR_SET_PDEATHSIG = 1  # linux/prctl.h
_STOP_SECONDS = 30.0
_SEARCH_SECONDS = 1.0  # between two searches for new children, which cost milliseconds


def stop_with_parent() -> None:
    """Ask the kernel for SIGTERM when the suite ends in any way."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


class EndedError(Exception):
    """A measured program ended by itself. ``code`` is its exit code."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


class Memory(NamedTuple):
    """The memory of one process, in bytes. ``pss`` counts a page that n processes share as 1/n."""

    pss: int
    rss: int


class ProcessGroup:
    """The processes of a program, as a context manager. Their output is shown if one of them ends."""

    def __init__(self, name: str, commands: Sequence[Sequence[str]], environment: dict[str, str]) -> None:
        self.name = name
        self.commands = commands
        self.environment = environment
        self._processes: list[subprocess.Popen[bytes]] = []
        self._seen: dict[int, psutil.Process] = {}
        self._searched = 0.0

    def __enter__(self) -> Self:
        self._log = tempfile.TemporaryFile()
        self.started_at = time.time()
        self._processes = [
            subprocess.Popen(
                command,
                env=self.environment,
                cwd=ROOT,
                stdout=self._log,
                stderr=self._log,
                preexec_fn=stop_with_parent,  # noqa: PLW1509 - it makes a single system call
            )
            for command in self.commands
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
                raise EndedError(f"{self.name} ended with exit code {code}: {self.last_output()}", code)

    def last_output(self, lines: int = 1) -> str:
        """Return the last lines of its output."""
        self._log.seek(0)
        text = self._log.read().decode(errors="replace").strip()
        return "\n".join(text.splitlines()[-lines:]) or "no output"

    def _tree(self) -> list[psutil.Process]:
        """Return the processes started here and all their descendants."""
        now = time.monotonic()
        if now - self._searched > _SEARCH_SECONDS:
            self._searched = now
            for process in self._processes:
                with contextlib.suppress(psutil.NoSuchProcess):
                    parent = psutil.Process(process.pid)
                    for each in (parent, *parent.children(recursive=True)):
                        self._seen.setdefault(each.pid, each)
        return list(self._seen.values())

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of all its processes so far."""
        total = 0.0
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                total += times.user + times.system
        return total

    def pids(self) -> list[int]:
        """Return all its current processes."""
        self._searched = 0.0
        return [process.pid for process in self._tree()]

    def pss(self) -> list[int]:
        """Return the bytes of each process. A page that n processes share counts as 1/n."""
        self._searched = 0.0
        found = []
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                found.append(process.memory_full_info().pss)
        return found

    def memory(self) -> dict[int, Memory]:
        """Return the memory of every worker process, by pid, without its children."""
        self._searched = 0.0
        found = {}
        for process in self._tree():
            with contextlib.suppress(psutil.Error):
                if self._is_worker_process(process):
                    info = process.memory_full_info()
                    found[process.pid] = Memory(info.pss, info.rss)
        return found

    def _is_worker_process(self, process: psutil.Process) -> bool:
        """Return whether the supervisor spawned it. Children that run tasks are forked and have the same name."""
        parents = [one.pid for one in self._processes]
        return process.ppid() in parents and "spawn_main" in " ".join(process.cmdline())


def worker(endpoint: Endpoint, handler: str, **settings: str) -> ProcessGroup:
    """Return the worker with default settings, except for the variables given."""
    variables = {
        "WORKER_HANDLER": f"benchmarks.handlers:{handler}",
        "WORKER_PROCESSES": str(PROCESSES),
        "WORKER_HTTP_PORT": "0",
        "WORKER_LOG_FORMAT": "json",
        **settings,
    }
    return ProcessGroup("worker", [[sys.executable, "-P", "-m", "worker", "run"]], environment(endpoint, variables))


def replicas(endpoint: Endpoint, handler: str, count: int, **settings: str) -> ProcessGroup:
    """Return ``count`` replicas of the worker, with one process each."""
    group = worker(endpoint, handler, WORKER_PROCESSES="1", **settings)
    (command,) = group.commands
    named = [["/usr/bin/env", f"WORKER_REPLICA=bench-{number}", *command] for number in range(count)]
    return ProcessGroup("worker", named, group.environment)


def bare_loop(endpoint: Endpoint) -> ProcessGroup:
    """Return the bare loop in as many processes as the worker, each with an equal share of the partitions."""
    shares = [",".join(map(str, range(PARTITIONS)[number::PROCESSES])) for number in range(PROCESSES)]
    commands = [[sys.executable, "-P", "-m", "benchmarks.baselines", share] for share in shares]
    return ProcessGroup(BARE, commands, environment(endpoint, {}))


def environment(endpoint: Endpoint, more: dict[str, str]) -> dict[str, str]:
    """Return the caller's environment with these settings instead of any other settings of a worker."""
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("KAFKA_", "WORKER_"))}
    return {
        **inherited,
        "PYTHONPATH": str(ROOT),
        "KAFKA_BOOTSTRAP_SERVER": endpoint.address,
        "KAFKA_REQUEST_TOPIC": endpoint.request_topic,
        "KAFKA_ACK_TOPIC": endpoint.ack_topic,
        "KAFKA_CONSUMER_GROUP_ID": endpoint.group,
        **more,
    }
