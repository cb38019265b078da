"""``worker doctor`` on a real broker: one line per check, the exit code of the worst, no secrets, and no tracebacks."""

from __future__ import annotations

import subprocess
import sys
import time
import uuid
from typing import TYPE_CHECKING, NamedTuple

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka_broker import Broker

pytestmark = pytest.mark.kafka

HANDLER = "def handle(request, context, depth=1):\n    return None\n"
SECRET = "tr0ub4dor-and-3"


class Report(NamedTuple):
    """The output and the exit code of the doctor."""

    code: int
    output: str
    stderr: str

    def verdicts(self) -> dict[str, str]:
        """Return the verdict of each check, or the worst one if several checks have the same name."""
        found: dict[str, str] = {}
        for line in self.output.splitlines():
            verdict, name = line[:5].strip(), line[5:25].strip()
            if verdict in {"OK", "WARN", "FAIL"}:
                found[name] = max(found.get(name, verdict), verdict, key=["OK", "WARN", "FAIL"].index)
        return found


@pytest.fixture
def doctor(broker: Broker, tmp_path: Path) -> Callable[..., Report]:
    """Return a function that runs the doctor in a folder with a handler, with valid settings and the given changes."""
    (tmp_path / "jobs.py").write_text(HANDLER)
    topics = broker.topics(2)

    def run(**variables: str) -> Report:
        environ = {
            "PYTHONPATH": ":".join(path for path in sys.path if path),
            "KAFKA_BOOTSTRAP_SERVER": broker.bootstrap,
            "KAFKA_REQUEST_TOPIC": topics[0],
            "KAFKA_ACK_TOPIC": topics[1],
            "KAFKA_CONSUMER_GROUP_ID": f"group-{uuid.uuid4().hex[:8]}",
            "KAFKA_CONNECT_TIMEOUT": "5s",
            "WORKER_HANDLER": "jobs:handle",
            "WORKER_PROCESSES": "1",
            **variables,
        }
        command = [sys.executable, "-m", "worker", "doctor"]
        done = subprocess.run(
            command, env=environ, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=50
        )
        return Report(done.returncode, done.stdout, done.stderr)

    return run


def test_the_doctor_passes_a_healthy_installation(broker: Broker, doctor: Callable[..., Report]) -> None:
    """It prints every check, none of which fails, and the effective settings with masked secrets."""
    report = doctor(KAFKA_CONFIG_SASL_PASSWORD=SECRET, WORKER_HANDLER_KWARGS='{"depth": 3}')

    assert (report.code, report.stderr) == (0, "")
    assert report.verdicts() == {
        "handler": "OK",
        "processes": "OK",
        "broker": "OK",
        "request topic": "OK",
        "ack topic": "OK",
        "dead-letter topic": "WARN",  # not created yet
        "partitions": "OK",
        "retention": "OK",
        "answer size": "OK",
        "state topic": "OK",  # none is set, and the doctor says so
        "group": "OK",
        "group protocol": "OK",
    }
    shown = [line.split(maxsplit=1) for line in report.output.partition("\n\n")[0].splitlines()]
    assert ["KAFKA_BOOTSTRAP_SERVER", broker.bootstrap] in shown
    assert ["WORKER_RETRY_BACKOFF", "1s..5m  (default)"] in shown
    assert ["KAFKA_CONFIG_SASL_PASSWORD", "***"] in shown
    assert SECRET not in report.output
    assert report.output.endswith("\nworker run would start; 1 warning\n")


def test_the_doctor_creates_no_group_and_no_topic(broker: Broker, doctor: Callable[..., Report]) -> None:
    """It looks at missing topics and tries a group protocol."""
    group, admin = f"group-{uuid.uuid4().hex[:8]}", AdminClient({"bootstrap.servers": broker.bootstrap})
    requests = broker.topic(2)
    doctor(KAFKA_REQUEST_TOPIC=requests, KAFKA_CONSUMER_GROUP_ID=group, KAFKA_ACK_TOPIC=f"missing-{group}")

    assert [name for name in admin.list_topics(timeout=5).topics if group in name or requests in name] == [requests]
    assert [found.group_id for found in admin.list_consumer_groups().result(5).valid if group in found.group_id] == []


def test_the_doctor_compares_the_clock_with_the_newest_record(broker: Broker, doctor: Callable[..., Report]) -> None:
    """The check passes with a record of now, and warns with a record of tomorrow."""
    topics = {"KAFKA_REQUEST_TOPIC": broker.topic(1, {"message.timestamp.after.max.ms": "200000000"})}
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topics["KAFKA_REQUEST_TOPIC"], b"now")
    producer.flush(10)
    assert doctor(**topics).verdicts()["clock"] == "OK"

    producer.produce(topics["KAFKA_REQUEST_TOPIC"], b"tomorrow", timestamp=int(time.time() + 86_400) * 1000)
    producer.flush(10)
    report = doctor(**topics)

    assert report.verdicts()["clock"] == "WARN"
    assert "in the future" in report.output


@pytest.mark.parametrize(
    ("variables", "code", "failed"),
    [
        ({"WORKER_PROCESSES": "many", "WORKER_HANDLR": "x"}, 2, {"settings"}),
        ({"KAFKA_CONFIG_NO_SUCH": "x"}, 2, {"settings"}),
        ({"WORKER_HANDLER": "jobs:handel"}, 3, {"handler"}),
        ({"KAFKA_ACK_TOPIC": "missing"}, 4, {"ack topic"}),
        ({"KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:1", "KAFKA_CONNECT_TIMEOUT": "1s"}, 4, {"broker"}),
        ({"WORKER_HANDLER": "nowhere:handle", "KAFKA_ACK_TOPIC": "missing"}, 3, {"handler", "ack topic"}),
    ],
)
def test_a_failed_check_sets_the_exit_code(
    doctor: Callable[..., Report], variables: dict[str, str], code: int, failed: set[str]
) -> None:
    """The exit code is the one that ``worker run`` would end with."""
    report = doctor(**variables)

    assert {name for name, verdict in report.verdicts().items() if verdict == "FAIL"} == failed
    assert report.code == code
    assert "worker run would not start" in report.output
    assert (report.stderr, "Traceback" in report.output) == ("", False)


def test_the_doctor_does_not_try_the_classic_protocol(doctor: Callable[..., Report]) -> None:
    """It only reports the setting."""
    report = doctor(KAFKA_GROUP_PROTOCOL="classic")

    assert "classic, as KAFKA_GROUP_PROTOCOL says" in report.output
    assert report.code == 0
