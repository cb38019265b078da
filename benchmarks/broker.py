"""The suite's broker, with all its files in a temporary folder."""

from __future__ import annotations

import os
import random
import re
import socket
import struct
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil
from confluent_kafka import admin

from worker.kafka.cluster import Cluster

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[1]
PARTITIONS = 4  # two for each of two processes
_SCRIPT = ROOT / "scripts/kafka"
# Waits until its standard input is closed, by the suite or by the kernel at the suite's end, and then stops the broker.
_KEEP = 'read -r _ || true; "$0" down --purge; rm -rf -- "$1"'
_PORTS = range(20000, 32000)  # below the range of outgoing connections
_BATCH_HEAD = struct.Struct(">qi")  # of a record batch in a log file: base offset, length of what follows


class Broker:
    """One-node Kafka from ``scripts/kafka`` on a free port, as a context manager. ``properties`` come last."""

    def __init__(self, properties: Mapping[str, str] | None = None) -> None:
        self._spent = 0.0  # CPU seconds of the broker's former processes
        self._properties = ";".join(f"{key}={value}" for key, value in (properties or {}).items())

    def __enter__(self) -> Self:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-kafka-"))
        port = free_port()
        self.address = f"127.0.0.1:{port}"
        environment = {**os.environ, "KAFKA_PORT": str(port), "KAFKA_DATA_DIR": str(self._folder)}
        if self._properties:
            environment["KAFKA_BROKER_PROPERTIES"] = self._properties
        self._keeper = subprocess.Popen(
            ["/bin/sh", "-c", _KEEP, _SCRIPT, self._folder],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # a Ctrl-C on the terminal must not reach it
        )
        try:
            subprocess.run([_SCRIPT, "up"], env=environment, check=True, stdout=subprocess.DEVNULL)
            self.process = self._running()
        except BaseException as error:
            self.__exit__()
            if isinstance(error, subprocess.CalledProcessError):
                raise SystemExit("the broker did not start: see above, and try scripts/kafka up by itself") from None
            raise
        self._environment = environment
        self._connect()
        return self

    def _connect(self) -> None:
        self._cluster = Cluster({"bootstrap.servers": self.address})
        self._admin = admin.AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def __exit__(self, *_: object) -> None:
        self._keeper.communicate()  # closes the pipe and waits

    @property
    def version(self) -> str:
        """Return the version, from the names of its jars."""
        found = re.search(r"kafka-(\d[\d.]*\d)/", " ".join(self.process.cmdline()))
        return found[1] if found else "?"

    def cpu_seconds(self) -> float:
        """Return the CPU seconds of the broker so far."""
        times = self.process.cpu_times()
        return self._spent + times.user + times.system

    def restart(self) -> None:
        """Stop the broker with SIGTERM, start it again with its data, and return when it is ready.

        A client that was there before may never find it again (docs/decisions/0075), so callers need new ones.
        """
        self._spent = self.cpu_seconds()
        for command in ("down", "up"):
            subprocess.run([_SCRIPT, command], env=self._environment, check=True, stdout=subprocess.DEVNULL)
        self.process = self._running()
        self._connect()

    def _running(self) -> psutil.Process:
        return psutil.Process(int((self._folder / "broker.pid").read_text().split()[0]))

    # -- topics

    def create(self, topic: str, partitions: int = PARTITIONS, config: Mapping[str, str] | None = None) -> None:
        """Create a topic."""
        self._cluster.create(topic, partitions, config)

    def delete(self, *topics: str) -> None:
        """Delete topics to free the disk, without waiting."""
        self._admin.delete_topics(list(topics))

    def records(self, topic: str) -> int:
        """Return how many records were ever written to a topic, transaction markers included."""
        partitions = self._cluster.find(topic) or []  # __consumer_offsets is created with the first group
        return sum(span.end for span in self._cluster.spans(partitions).values())

    def batches(self, topic: str) -> int:
        """Return the number of record batches in a topic's log files. A produce request adds one per partition."""
        return sum(_count_batches(file) for file in self._logs(topic))

    def size(self, topic: str) -> int:
        """Return the bytes of all records of a topic, which are the same in the log and on the wire."""
        return sum(file.stat().st_size for file in self._logs(topic))

    def _logs(self, topic: str) -> Iterator[Path]:
        return self._folder.glob(f"kafka-data/{topic}-*/*.log")


def _count_batches(file: Path) -> int:
    count = position = 0
    size = file.stat().st_size
    with file.open("rb") as log:
        while position + _BATCH_HEAD.size <= size:
            log.seek(position)
            length = _BATCH_HEAD.unpack(log.read(_BATCH_HEAD.size))[1]
            if length <= 0:
                break
            position += _BATCH_HEAD.size + length
            count += 1
    return count


def free_port() -> int:
    for port in random.sample(_PORTS, 50):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port
    raise RuntimeError("no free port found")
