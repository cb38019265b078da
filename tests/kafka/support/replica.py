"""``worker run`` as a separate program, observed and stopped from outside."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from tests.kafka.support.waiting import WAIT_LIMIT, until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[3]
HANDLERS = Path(__file__).parents[1] / "handlers"


class Page(NamedTuple):
    """The answer of an endpoint."""

    status: int
    text: str


def alive(pid: int) -> bool:
    """Return whether a process runs. A zombie that waits to be reaped does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Replica:
    """A running replica in a separate session, with a clean environment."""

    def __init__(self, folder: Path, environment: Mapping[str, str], cwd: Path | str = HANDLERS) -> None:
        self.port = free_port()
        self._log = folder / f"replica-{self.port}.log"
        self._seen: list[psutil.Process] = []
        clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "WORKER_HTTP_PORT": str(self.port)}
        clean |= {name: value for name, value in os.environ.items() if name.startswith("COVERAGE_")}
        with self._log.open("wb") as stderr, (folder / f"replica-{self.port}.out").open("wb") as stdout:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "worker", "run"],
                cwd=cwd,
                env={**clean, **environment},
                stdin=subprocess.DEVNULL,
                stdout=stdout,
                stderr=stderr,
                start_new_session=True,
            )

    # -- output

    @property
    def stderr(self) -> str:
        """Return the text that the replica has written to stderr so far."""
        return self._log.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        """Return the last lines of the replica, for the message of a failure."""
        kept = [line[:300] for line in self.stderr.splitlines()[-lines:]]
        return "\n".join([f"-- replica {self.process.pid}, exit code {self.process.poll()}", *kept])

    def events(self, *names: str) -> list[dict[str, Any]]:
        """Return the log lines with these events so far."""
        found = []
        for line in self.stderr.splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("event") in names:
                    found.append(entry)
        return found

    def get(self, path: str) -> Page | None:
        """Return the answer of an endpoint, or None if it does not answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return Page(answer.status, answer.read().decode())
        except OSError:
            return None
        finally:
            connection.close()

    def page(self, path: str) -> Page:
        """Wait for an answer of an endpoint, and return it."""
        page: Page = until(lambda: self.get(path), lambda: f"{path} is not served\n{self.tail()}")
        return page

    def wait_status(self, path: str, status: int) -> Page:
        """Wait for an answer of an endpoint with this status, and return it."""
        page: Page = until(
            lambda: (page := self.get(path)) and page.status == status and page,
            lambda: f"{path} is not {status}\n{self.tail()}",
        )
        return page

    def tasks(self) -> list[dict[str, Any]]:
        """Return the processes as ``/tasks`` shows them, or an empty list if it does not answer."""
        page = self.get("/tasks")
        processes: list[dict[str, Any]] = json.loads(page.text)["processes"] if page else []
        return processes

    def pids(self) -> list[int]:
        """Return the running worker processes, slot by slot."""
        return [process["pid"] for process in self.tasks() if process["pid"] is not None]

    def descendants(self) -> list[int]:
        """Return every process of the replica except the supervisor."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen = psutil.Process(self.process.pid).children(recursive=True)
        return [process.pid for process in self._seen]

    # -- signals and exit

    def wait_ready(self, seconds: float = WAIT_LIMIT) -> Replica:
        """Wait until tasks may start."""

        def ready() -> bool:
            assert self.process.poll() is None, f"it ended while it was to become ready\n{self.tail()}"
            page = self.get("/readyz")
            return page is not None and page.status == http.HTTPStatus.OK

        until(ready, lambda: f"not ready\n{self.tail()}", seconds)
        return self

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the supervisor."""
        self.process.send_signal(number)

    def wait_exit(self, seconds: float = WAIT_LIMIT) -> int:
        """Wait until the replica has ended, and return its exit code."""
        until(lambda: self.process.poll() is not None, lambda: f"it has not ended\n{self.tail()}", seconds)
        return self.process.returncode

    def stop(self, seconds: float = WAIT_LIMIT) -> int:
        """Send SIGTERM, and return the exit code after the drain."""
        self.send(signal.SIGTERM)
        return self.wait_exit(seconds)

    def clean_up(self) -> None:
        """Kill all remaining processes."""
        self.descendants()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for process in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def kill(pids: Iterable[int]) -> None:
    """Kill processes, as a crash would."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def metric(replica: Replica, name: str) -> float:
    """Return the current sum of a metric over the processes of a replica and all its other labels."""
    lines = replica.page("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((f"worker_{name}{{", f"worker_{name} ")))
