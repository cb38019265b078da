"""Redis on the loopback interface for the queue peers, and the part of its protocol that the suite needs."""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self

import psutil

from benchmarks.broker import free_port
from benchmarks.processes import stop_with_parent

if TYPE_CHECKING:
    from benchmarks.environments import Environments

# Everything stays in memory, without snapshots or an append-only file. This is Redis's fastest form, which favours
# the peers, but it loses all data when its process ends.
_SETTINGS = ("--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel", "warning")
_START_SECONDS = 10.0


class RedisServer:
    """A Redis server, as a context manager. Database 0 has the queues, database 1 the results."""

    def __init__(self, environments: Environments) -> None:
        self._command, self._variables = environments.redis()
        self._port = free_port()
        self.url = f"redis://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        self._server = subprocess.Popen(
            [*self._command, *_SETTINGS, "--port", str(self._port)],
            env={**os.environ, **self._variables},
            stdout=subprocess.DEVNULL,
            preexec_fn=stop_with_parent,  # noqa: PLW1509 - it makes a single system call
        )
        try:
            self._connect()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(AttributeError):
            self._socket.close()
        self._server.terminate()
        self._server.wait()

    def _connect(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(ConnectionRefusedError):
                self._socket = socket.create_connection(("127.0.0.1", self._port))
                self._replies = self._socket.makefile("rb")
                return
            if time.monotonic() > deadline or self._server.poll() is not None:
                raise RuntimeError("redis-server did not start")
            time.sleep(0.02)

    @property
    def version(self) -> str:
        """Return the version that the server reports."""
        lines = str(self.command("INFO", "server"), "utf-8").splitlines()
        return next(line.removeprefix("redis_version:") for line in lines if line.startswith("redis_version:"))

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the server so far."""
        times = psutil.Process(self._server.pid).cpu_times()
        return times.user + times.system

    def command(self, *words: str | bytes, database: int = 0) -> Any:
        """Return the answer to a command: an int, bytes, a list of them, or None. Raise RuntimeError for an error."""
        self._send("SELECT", str(database))
        self._reply()
        self._send(*words)
        return self._reply()

    def _send(self, *words: str | bytes) -> None:
        encoded = [word.encode() if isinstance(word, str) else word for word in words]
        parts = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
        self._socket.sendall(b"*%d\r\n%b" % (len(encoded), parts))

    def _reply(self) -> Any:
        line = self._replies.readline()[:-2]
        kind, rest = line[:1], line[1:]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._replies.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return [self._reply() for _ in range(int(rest))]
        return rest
