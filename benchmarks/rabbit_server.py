"""RabbitMQ on the loopback interface, the reference broker of Celery."""

from __future__ import annotations

import os
import shutil
import socket
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Self

from benchmarks.broker import free_port
from benchmarks.processes import ProcessGroup

if TYPE_CHECKING:
    from benchmarks.environments import Environments

_GREETING = b"AMQP\x00\x00\x09\x01"  # of AMQP 0-9-1; a ready server answers with a method frame
_METHOD_FRAME = 1
_START_SECONDS = 60.0


def _home(root: Path) -> Path:
    (found,) = root.glob("usr/lib/rabbitmq/lib/rabbitmq_server-*")
    return found


def version(root: Path) -> str:
    """Return the version of the server that is unpacked there."""
    return _home(root).name.partition("-")[2]


class RabbitServer:
    """A RabbitMQ server, as a context manager. Default settings, with durable queues and persistent messages."""

    def __init__(self, environments: Environments) -> None:
        root = environments.rabbitmq()
        self._home = _home(root)
        self._erlang = root / "usr/lib/erlang"
        self._port = free_port()
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-rabbit-"))
        (epmd,) = self._erlang.glob("erts-*/bin/epmd")
        variables = self._variables(free_port())
        commands = [
            [str(epmd), "-address", "127.0.0.1", "-port", variables["ERL_EPMD_PORT"]],
            ["/bin/sh", str(self._home / "sbin/rabbitmq-server")],
        ]
        self._processes = ProcessGroup("RabbitMQ", commands, variables)
        self._processes.__enter__()
        try:
            self._await_start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._processes.__exit__()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _variables(self, names: int) -> dict[str, str]:
        """Return its variables. ``names`` is the port of Erlang's name server. All files go into the folder."""
        folder = self._folder
        return {
            **os.environ,
            "HOME": str(folder),
            "PATH": f"{self._erlang}/bin:{os.environ['PATH']}",
            "ERL_EPMD_PORT": str(names),
            "RABBITMQ_HOME": str(self._home),
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(self._port),
            "RABBITMQ_DIST_PORT": str(free_port()),
            "RABBITMQ_MNESIA_BASE": str(folder / "mnesia"),
            "RABBITMQ_LOG_BASE": str(folder / "log"),
            "RABBITMQ_PID_FILE": str(folder / "pid"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "rabbitmq-env.conf"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        }

    def _await_start(self) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while not self._greets():
            self._processes.check()
            if time.monotonic() > deadline:
                raise TimeoutError(f"RabbitMQ did not start: {self._processes.last_output()}")
            time.sleep(0.2)

    def _greets(self) -> bool:
        try:
            with socket.create_connection(("127.0.0.1", self._port), 2) as connection:
                connection.sendall(_GREETING)
                return connection.recv(1) == bytes([_METHOD_FRAME])
        except OSError:
            return False

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of its processes so far."""
        return self._processes.cpu_seconds()
