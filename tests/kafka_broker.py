"""A real Kafka broker of the tests' own, started and stopped by ``scripts/kafka``."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import admin as kafka_admin

from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

api: Any = kafka_admin  # its types leave out what it gives
ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / ".runtime"
CREATE_SECONDS = 20.0


class Broker:
    """A broker that answers. Topics are made as they are asked for and are nobody else's."""

    def __init__(self, port: int, folder: Path, properties: str = "") -> None:
        self.port = port
        self.bootstrap = f"127.0.0.1:{port}"
        self._environment = {
            **os.environ,
            "KAFKA_PORT": str(port),
            "KAFKA_DATA_DIR": str(folder),
            "KAFKA_BROKER_PROPERTIES": properties,
        }

    def script(self, *arguments: str) -> None:
        """Call ``scripts/kafka``: up, stop, kill, restart, down."""
        done = subprocess.run(
            [ROOT / "scripts" / "kafka", *arguments], env=self._environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            message = f"scripts/kafka {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"
            raise RuntimeError(message)

    def topic(self, partitions: int = 4, config: Mapping[str, str] | None = None) -> str:
        """A fresh topic with a name of its own."""
        return self._create(1, partitions, config)[0]

    def topics(self, count: int, partitions: int = 4, config: Mapping[str, str] | None = None) -> list[str]:
        """So many fresh topics, made in one go."""
        return self._create(count, partitions, config)

    def shorten_sessions(self, group: str) -> None:
        """Under the consumer protocol the broker decides how long a silent member is waited for: not 45 s here."""
        admin = api.AdminClient({"bootstrap.servers": self.bootstrap})
        session = "consumer.session.timeout.ms"
        setting = api.ConfigEntry(session, "2000", incremental_operation=api.AlterConfigOpType.SET)
        resource = api.ConfigResource(api.ResourceType.GROUP, group, incremental_configs=[setting])
        for altered in admin.incremental_alter_configs([resource]).values():
            altered.result(CREATE_SECONDS)

    def _create(self, count: int, partitions: int, config: Mapping[str, str] | None) -> list[str]:
        names = [f"t-{uuid.uuid4().hex[:12]}" for _ in range(count)]
        create_topics(self.bootstrap, names, partitions, config)
        return names


def create_topics(
    bootstrap: str, names: Sequence[str], partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Make topics; when this returns the broker knows them, which is a while after it has said that they are made."""
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    topics = [api.NewTopic(name, partitions, 1, config=dict(config or {})) for name in names]
    for created in admin.create_topics(topics, operation_timeout=CREATE_SECONDS).values():
        created.result(CREATE_SECONDS)
    _wait(bootstrap, names, there=True)


def recreate_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Delete a topic and make another of its name."""
    delete_topic(bootstrap, name)
    create_topics(bootstrap, [name], partitions)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic; when this returns the broker does not know it any more."""
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    admin.delete_topics([name], operation_timeout=CREATE_SECONDS)[name].result(CREATE_SECONDS)
    _wait(bootstrap, [name], there=False)


def _wait(bootstrap: str, names: Sequence[str], *, there: bool) -> None:
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    deadline = time.monotonic() + CREATE_SECONDS
    while True:
        known = admin.list_topics(timeout=CREATE_SECONDS).topics
        if all((name in known) is there for name in names):
            return
        if time.monotonic() > deadline:
            message = f"{', '.join(names)}: still {'not' * there} there after {CREATE_SECONDS:g} s"
            raise TimeoutError(message)
        time.sleep(0.02)


@contextlib.contextmanager
def running_broker(properties: str = "") -> Iterator[Broker]:
    """A broker with these further properties (``key=value;key=value``), gone without a trace at the end."""
    _check_runtime()
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        broker = Broker(free_port(), Path(folder) / "broker", properties)
        try:
            broker.script("up")
            yield broker
        finally:
            broker.script("down", "--purge")


def _check_runtime() -> None:
    """``scripts/kafka`` would fetch what is missing; a test must say so instead of downloading for minutes."""
    java, jars = RUNTIME / "java" / "bin" / "java", list(RUNTIME.glob("kafka-*"))
    missing = [what for what, there in (("a Java runtime", java.exists()), ("the broker's jars", jars)) if not there]
    if missing:
        message = f"tests with a real Kafka need {' and '.join(missing)} in {RUNTIME}: run scripts/setup first"
        raise RuntimeError(message)
