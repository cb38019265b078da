"""One Kafka broker and controller. Each replica has a separate listener behind a separate link."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
from typing import TYPE_CHECKING, NamedTuple

from chaos import procutil
from chaos.procutil import ROOT
from chaos.users import BROKER_PEM, MECHANISM

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from chaos.proxy import Link

VERSION = os.environ.get("KAFKA_VERSION", "4.3.0")
OLD_VERSION = "4.1.1"  # the oldest minor version that the worker supports
_JAVA = ROOT / ".runtime/java/bin/java"
_DISK = 768  # megabytes, for a disk that may become full
_BALLAST = 2**20
_LOGIN = "org.apache.kafka.common.security.scram.ScramLoginModule"
_REAUTHENTICATE_MS = 20_000  # a client of a deleted user is cut off after this time
# The smallest request (ApiVersions v0), and the first bytes of its response after the length.
_PING, _PONG = b"\0\0\0\x0a\0\x12\0\0ping\xff\xff", b"ping\0\0"

_LOGGING = """rootLogger.level=INFO
rootLogger.appenderRef.file.ref=FILE
appender.file.type=File
appender.file.name=FILE
appender.file.fileName={log}
appender.file.layout.type=PatternLayout
appender.file.layout.pattern=[%d] %p %m (%c)%n
"""


class Layout(NamedTuple):
    """How brokers are made.

    ``old`` ones have the version from which they can be upgraded. The links' listeners of ``secured`` ones want TLS, a
    password and permissions. Their certificate is in the folder of all brokers.
    """

    brokers: int
    small_disks: bool = False
    old: bool = False
    secured: bool = False


class Node:
    """A broker. ``number`` counts from 1. ``port`` is the direct listener of the suite and of the other brokers."""

    def __init__(self, number: int, folder: Path, links: Sequence[Link], layout: Layout) -> None:
        self.number = number
        self.version = OLD_VERSION if layout.old else VERSION
        self.folder = folder / f"broker-{number}"
        self.folder.mkdir(parents=True)
        self.data = self.folder / "disk"
        self.small_disk = layout.small_disks
        self._certificate = folder / BROKER_PEM if layout.secured else None
        if self.small_disk:
            procutil.mount_small(self.data, _DISK)
        self.port, self.controller, *self._listeners = procutil.free_ports(2 + len(links))
        self._links = links
        for link, port in zip(links, self._listeners, strict=True):
            link.target = port
        self.process: subprocess.Popen[bytes] | None = None
        self.frozen = False

    @property
    def _command(self) -> list[str | Path]:
        options = ["-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:+ExitOnOutOfMemoryError"]
        options += [f"-XX:ErrorFile={self.folder}/crash", "-Djava.awt.headless=true", "-Djava.net.preferIPv4Stack=true"]
        return [
            _JAVA,
            *options,
            f"-Dlog4j2.configurationFile={self.folder}/log4j2.properties",
            "-cp",
            f"{jars(self.version)}/*",
        ]

    def write_settings(self, nodes: Sequence[Node]) -> None:
        """Write its settings. The ports of all brokers must be known."""
        listeners = {f"LISTENER{listener}": port for listener, port in enumerate(self._listeners)}
        ours = {"DIRECT": self.port, **listeners}
        outside = {
            "DIRECT": self.port,
            **{f"LISTENER{listener}": link.port for listener, link in enumerate(self._links)},
        }
        copies, least = len(nodes), min(2, len(nodes))
        protocol = "SASL_SSL" if self._certificate else "PLAINTEXT"
        settings = {
            "process.roles": "broker,controller",
            "node.id": self.number,
            "controller.quorum.voters": ",".join(f"{node.number}@127.0.0.1:{node.controller}" for node in nodes),
            "listeners": _addresses({**ours, "CONTROLLER": self.controller}),
            "advertised.listeners": _addresses(outside),
            "listener.security.protocol.map": ",".join(
                [
                    *(f"{name}:PLAINTEXT" for name in ("DIRECT", "CONTROLLER")),
                    *(f"{name}:{protocol}" for name in listeners),
                ]
            ),
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "DIRECT",
            "log.dirs": self.data / "data",
            "default.replication.factor": copies,
            "min.insync.replicas": least,
            "offsets.topic.replication.factor": copies,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": least,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": copies,
            "log.cleaner.dedupe.buffer.size": 16_777_216,
            **_QUICK,
            **(_secured(listeners, self._certificate) if self._certificate else {}),
        }
        text = "\n".join(f"{name}={value}" for name, value in settings.items())
        (self.folder / "settings").write_text(text + "\n")
        (self.folder / "log4j2.properties").write_text(_LOGGING.format(log=self.folder / "log"))

    @property
    def upgraded(self) -> bool:
        """Return whether it has the new version."""
        return self.version == VERSION

    def upgrade(self) -> None:
        """Use the new version from the next start on."""
        self.version = VERSION

    async def prepare(self, cluster: str) -> None:
        """Format the storage."""
        tool = [*self._command, "kafka.tools.StorageTool", "format", "-t", cluster, "-c", self.folder / "settings"]
        with (self.folder / "console").open("wb") as console:
            process = await asyncio.create_subprocess_exec(*map(str, tool), stdout=console, stderr=console)
            if await process.wait():
                raise RuntimeError(f"broker {self.number}: the storage cannot be prepared, see {console.name}")

    # -- its process

    def launch(self, run: str) -> None:
        """Start it without waiting for it."""
        environment = {"PATH": os.environ["PATH"], procutil.MARKER: run}
        command = [*self._command, "kafka.Kafka", self.folder / "settings"]
        self.process = procutil.start(command, environment, self.folder / "console")
        self.frozen = False

    @property
    def running(self) -> bool:
        """Return whether its process is alive."""
        return self.process is not None and self.process.poll() is None

    async def answers(self) -> bool:
        """Return whether it answers now."""
        if not self.running:
            return False
        writer = None
        try:
            async with asyncio.timeout(1):
                reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
                writer.write(_PING)
                return (await reader.readexactly(10))[4:] == _PONG
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            return False
        finally:
            if writer is not None:
                writer.close()

    def signal(self, number: signal.Signals) -> None:
        """Send a signal to its process."""
        self.frozen = number is signal.SIGSTOP or (self.frozen and number is not signal.SIGCONT)
        if self.process is not None and self.running:
            self.process.send_signal(number)

    # -- its disk

    def fill_disk(self) -> None:
        """Fill the disk to the last byte."""
        with contextlib.suppress(OSError), (self.data / "ballast").open("wb", buffering=0) as ballast:
            while ballast.write(bytes(_BALLAST)):
                pass

    def free_disk(self) -> None:
        """Free the disk."""
        (self.data / "ballast").unlink(missing_ok=True)

    def close(self) -> None:
        """Kill it. Its folder stays."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
        if self.small_disk:
            procutil.unmount(self.data)


_QUICK = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1_000,
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.min.heartbeat.interval.ms": 100,
    "group.consumer.heartbeat.interval.ms": 500,
    "group.consumer.min.assignment.interval.ms": 0,
    "group.consumer.assignment.interval.ms": 0,
    "broker.session.timeout.ms": 3_000,
    "broker.heartbeat.interval.ms": 500,
    "replica.lag.time.max.ms": 5_000,
    "auto.create.topics.enable": "false",
}


def jars(version: str) -> Path:
    """Return the folder of Kafka's jars, which ``scripts/setup broker`` makes."""
    return ROOT / f".runtime/kafka-{version}"


def fetch_old() -> None:
    """Download the old version of Kafka, while there is a network. Raise CalledProcessError."""
    environment = {**os.environ, "KAFKA_VERSION": OLD_VERSION}
    subprocess.run([ROOT / "scripts/setup", "broker"], env=environment, check=True)


def _secured(listeners: Iterable[str], certificate: Path) -> dict[str, str]:
    """Return the settings with which these listeners want TLS, a password and permissions."""
    settings = {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS",  # the other brokers and the suite, which use the direct listeners
        "sasl.enabled.mechanisms": MECHANISM,
    }
    for listener in listeners:
        ours = f"listener.name.{listener.lower()}"
        settings[f"{ours}.ssl.keystore.type"] = "PEM"
        settings[f"{ours}.ssl.keystore.location"] = str(certificate)
        settings[f"{ours}.{MECHANISM.lower()}.sasl.jaas.config"] = f"{_LOGIN} required;"
        settings[f"{ours}.{MECHANISM.lower()}.connections.max.reauth.ms"] = f"{_REAUTHENTICATE_MS}"
    return settings


def _addresses(ports: dict[str, int]) -> str:
    return ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())
