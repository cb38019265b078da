"""A real Kafka broker for the tests, started and stopped by ``scripts/kafka``."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from confluent_kafka import admin as kafka_admin

from chaos import groups
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

api: Any = kafka_admin  # its types are incomplete
ROOT = Path(__file__).parents[1]
RUNTIME = ROOT / ".runtime"
CREATE_SECONDS = 20.0
NOT_RUNNING = 3  # the exit code of scripts/kafka status
FATAL = re.compile("FATAL|OutOfMemory|Shutdown broker|Too many open files|Map failed|No space left")
ERRORS = re.compile("ERROR|Exception|Error:")
SHOWN_ERRORS, SHOWN_LENGTH = 3, 300  # lines, and characters of a line


# No test kills the shared broker, and the machine is busy. After 3 s without a heartbeat (see scripts/kafka), it would
# give up its groups and partitions for a moment, during all running tests.
PATIENT = "broker.session.timeout.ms=30000"


class Broker:
    """A broker that answers. It creates topics on request, each for one caller."""

    def __init__(self, port: int, folder: Path, properties: str = "") -> None:
        self.port = port
        self.bootstrap = f"127.0.0.1:{port}"
        self.folder = folder
        self._environment = {
            **os.environ,
            "KAFKA_PORT": str(port),
            "KAFKA_DATA_DIR": str(folder),
            "KAFKA_BROKER_PROPERTIES": properties,
        }

    def script(self, *arguments: str) -> None:
        """Call ``scripts/kafka``: up, stop, kill, restart, down."""
        done = self._script(*arguments)
        if done.returncode:
            message = f"scripts/kafka {' '.join(arguments)} failed:\n{done.stdout}{done.stderr}"
            raise RuntimeError(message)

    def lost(self) -> str:
        """Return an empty text if its process runs. Otherwise return a line that says so, and the ends of its logs."""
        if self._script("status").returncode != NOT_RUNNING:
            return ""
        console, log = (_lines(self.folder / name) for name in ("broker.console", "broker.log"))
        title = f"The broker on {self.bootstrap} ended before the tests. Its last errors and the end of its log:"
        return "\n".join([title, *_errors(console), *_errors(log[:-1]), *log[-1:]])

    def topic(self, partitions: int = 4, config: Mapping[str, str] | None = None) -> str:
        """Create a topic with a new name, and return the name."""
        return self._create(1, partitions, config)[0]

    def topics(self, count: int, partitions: int = 4, config: Mapping[str, str] | None = None) -> list[str]:
        """Create several topics at once, and return their names."""
        return self._create(count, partitions, config)

    def shorten_sessions(self, group: str) -> None:
        """Shorten the group's session, which the broker sets under the consumer protocol: 45 s by default."""
        self.configure(group, "consumer.session.timeout.ms", 2000)

    def configure(self, group: str, name: str, value: int) -> None:
        """Set something for one group, perhaps before it exists."""
        groups.configure(self.bootstrap, group, {name: str(value)})

    def _script(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(ROOT / "scripts" / "kafka"), *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)

    def _create(self, count: int, partitions: int, config: Mapping[str, str] | None) -> list[str]:
        names = [f"t-{uuid.uuid4().hex[:12]}" for _ in range(count)]
        create_topics(self.bootstrap, names, partitions, config)
        return names


def _lines(log: Path) -> list[str]:
    """Return the lines of a log, shortened and without the frames of stacks."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line[:SHOWN_LENGTH] for line in lines if line.strip() and not line[0].isspace()]


def _errors(lines: Sequence[str]) -> list[str]:
    """Return the last lines that tell why a broker ended, or else the last ones with any error."""
    found = (list(filter(pattern.search, lines)) for pattern in (FATAL, ERRORS))
    return next(filter(None, found), [])[-SHOWN_ERRORS:]


def create_topics(
    bootstrap: str, names: Sequence[str], partitions: int, config: Mapping[str, str] | None = None
) -> None:
    """Create topics, and wait until the broker knows them, which is a while after it has confirmed them."""
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    topics = [api.NewTopic(name, partitions, 1, config=dict(config or {})) for name in names]
    for created in admin.create_topics(topics, operation_timeout=CREATE_SECONDS).values():
        created.result(CREATE_SECONDS)
    _wait(bootstrap, names, there=True)


def recreate_topic(bootstrap: str, name: str, partitions: int) -> None:
    """Delete a topic, and create another one with its name."""
    delete_topic(bootstrap, name)
    create_topics(bootstrap, [name], partitions)


def configure_topic(bootstrap: str, name: str, config: Mapping[str, str]) -> None:
    """Change these properties of a topic."""
    admin = api.AdminClient({"bootstrap.servers": bootstrap})
    resource = api.ConfigResource(api.ResourceType.TOPIC, name)
    for key, value in config.items():
        resource.add_incremental_config(api.ConfigEntry(key, value, incremental_operation=api.AlterConfigOpType.SET))
    for changed in admin.incremental_alter_configs([resource]).values():
        changed.result(CREATE_SECONDS)


def delete_topic(bootstrap: str, name: str) -> None:
    """Delete a topic, and wait until the broker no longer knows it."""
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


class SharedBroker:
    """The broker of all processes of a test run. The first user starts it, and the run's main process ends it.

    ``folder`` belongs to the run and is the same for all of them.
    """

    def __init__(self, folder: Path) -> None:
        self._lock = folder / "broker.lock"
        self._place = folder / "broker.json"  # port and folder of the running broker

    def start(self) -> Broker:
        """Return the broker, and start it unless it runs. Other processes wait meanwhile."""
        _check_runtime()
        with self._lock.open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not self._place.exists():
                place = {"port": free_port(), "folder": tempfile.mkdtemp(prefix="kafka-")}
                self._place.write_text(json.dumps(place))  # before the start, so that a failed start is ended, too
                try:
                    self._broker().script("up")
                except RuntimeError:
                    self.end()  # the next process tries again
                    raise
            return self._broker()

    def end(self) -> str:
        """Stop it if it was started, and remove its files. No test may run any more. Return ``Broker.lost``."""
        if not self._place.exists():
            return ""
        lost = self._broker().lost()
        self._broker().script("down", "--purge")
        shutil.rmtree(json.loads(self._place.read_text())["folder"], ignore_errors=True)
        self._place.unlink()
        return lost

    def _broker(self) -> Broker:
        place = json.loads(self._place.read_text())
        return Broker(place["port"], Path(place["folder"]) / "broker", PATIENT)


@contextlib.contextmanager
def running_broker(properties: str = "") -> Iterator[Broker]:
    """Yield a broker with these further properties (``key=value;key=value``). Remove all its files at the end."""
    _check_runtime()
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        broker = Broker(free_port(), Path(folder) / "broker", properties)
        try:
            broker.script("up")
            yield broker
        finally:
            broker.script("down", "--purge")


def _check_runtime() -> None:
    """Fail if files are missing. ``scripts/kafka`` would download them, which takes minutes."""
    java, jars = RUNTIME / "java" / "bin" / "java", list(RUNTIME.glob("kafka-*"))
    missing = [what for what, there in (("a Java runtime", java.exists()), ("the broker's jars", jars)) if not there]
    if missing:
        message = f"tests with a real Kafka need {' and '.join(missing)} in {RUNTIME}: run scripts/setup first"
        raise RuntimeError(message)
