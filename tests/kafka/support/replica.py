"""``worker run`` as a program of its own, watched and ended from outside."""

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

from tests.kafka.support.waiting import PATIENCE, until
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

ROOT = Path(__file__).parents[3]
HANDLERS = Path(__file__).parents[1] / "handlers"


class Page(NamedTuple):
    """What an endpoint answered."""

    status: int
    text: str


def alive(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    with contextlib.suppress(psutil.NoSuchProcess):
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    return False


class Replica:
    """A running replica in a session of its own, with a clean environment."""

    def __init__(self, folder: Path, environment: Mapping[str, str], cwd: Path | str = HANDLERS) -> None:
        self.port = free_port()
        self._log = folder / f"replica-{self.port}.log"
        self._seen: list[psutil.Process] = []
        clean = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "WORKER_HTTP_PORT": str(self.port)}
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

    # -- what it says

    @property
    def stderr(self) -> str:
        """All it has written to stderr so far."""
        return self._log.read_text(errors="replace")

    def tail(self, lines: int = 25) -> str:
        """The last it has said, for failures."""
        kept = [line[:300] for line in self.stderr.splitlines()[-lines:]]
        return "\n".join([f"-- replica {self.process.pid}, exit code {self.process.poll()}", *kept])

    def events(self, *names: str) -> list[dict[str, Any]]:
        """The log lines with these events, so far."""
        found = []
        for line in self.stderr.splitlines():
            with contextlib.suppress(ValueError):
                entry = json.loads(line)
                if isinstance(entry, dict) and entry.get("event") in names:
                    found.append(entry)
        return found

    def get(self, path: str) -> Page | None:
        """What an endpoint answers, or None if nothing listens."""
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
        """What an endpoint answers, once it does."""
        page: Page = until(lambda: self.get(path), lambda: f"{path} is not served\n{self.tail()}")
        return page

    def wait_status(self, path: str, status: int) -> Page:
        """What an endpoint answers, once it is with this status."""
        page: Page = until(
            lambda: (page := self.get(path)) and page.status == status and page,
            lambda: f"{path} is not {status}\n{self.tail()}",
        )
        return page

    def tasks(self) -> list[dict[str, Any]]:
        """The processes as ``/tasks`` shows them; none while it does not answer."""
        page = self.get("/tasks")
        processes: list[dict[str, Any]] = json.loads(page.text)["processes"] if page else []
        return processes

    def pids(self) -> list[int]:
        """The worker processes that run now, slot by slot."""
        return [process["pid"] for process in self.tasks() if process["pid"] is not None]

    def descendants(self) -> list[int]:
        """Every process of the replica but the supervisor itself."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._seen = psutil.Process(self.process.pid).children(recursive=True)
        return [process.pid for process in self._seen]

    # -- what is done to it

    def wait_ready(self, seconds: float = PATIENCE) -> Replica:
        """Wait until tasks may start."""

        def ready() -> bool:
            assert self.process.poll() is None, f"it ended while it was to become ready\n{self.tail()}"
            page = self.get("/readyz")
            return page is not None and page.status == http.HTTPStatus.OK

        until(ready, lambda: f"not ready\n{self.tail()}", seconds)
        return self

    def send(self, number: signal.Signals) -> None:
        """Send the supervisor a signal."""
        self.process.send_signal(number)

    def wait_exit(self, seconds: float = PATIENCE) -> int:
        """Its exit code, once it has ended."""
        until(lambda: self.process.poll() is not None, lambda: f"it has not ended\n{self.tail()}", seconds)
        return self.process.returncode

    def stop(self, seconds: float = PATIENCE) -> int:
        """SIGTERM, and its exit code when it has drained."""
        self.send(signal.SIGTERM)
        return self.wait_exit(seconds)

    def clean_up(self) -> None:
        """End whatever is left of it."""
        self.descendants()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for process in self._seen:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def kill(pids: Iterable[int]) -> None:
    """End processes as a crash would."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


def metric(replica: Replica, name: str) -> float:
    """The sum of a metric over the processes of a replica and all its other labels, as it is now."""
    lines = replica.page("/metrics").text.splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((f"worker_{name}{{", f"worker_{name} ")))
