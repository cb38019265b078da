"""If the Kafka client crashes the preflight process, preflight is tried once more."""

from __future__ import annotations

import dataclasses
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from worker.errors import BrokerError, ExitCode, WorkerError
from worker.kafka.facts import Facts
from worker.process.status_block import StatusBlock
from worker.settings import Settings
from worker.supervisor import start_checks
from worker.supervisor.replica_status import ReplicaStatus
from worker.supervisor.start_checks import StartChecks

if TYPE_CHECKING:
    from collections.abc import Callable

FACTS = Facts(8, 1_000_000, 1_000_000, ())
SETTINGS = {
    "KAFKA_BOOTSTRAP_SERVER": "localhost:9092",
    "KAFKA_REQUEST_TOPIC": "requests",
    "KAFKA_ACK_TOPIC": "acks",
    "KAFKA_CONSUMER_GROUP_ID": "group",
    "WORKER_HANDLER": "package:handler",
}


@pytest.fixture
def preflight(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Facts | None]:
    """Return a function that runs preflight with children of these exit statuses. Status 0 comes with the facts."""

    def run_preflight(*statuses: int) -> Facts | None:
        left = list(statuses)

        class Ended:
            def __init__(self, name: str, _target: str, *about: object) -> None:
                buffer: Any = about[-3]
                if name == "handler-check":
                    StatusBlock(buffer).publish({"loaded": True})
                    self._status = 0
                    return
                self._status = left.pop(0)
                if self._status == 0:
                    StatusBlock(buffer).publish({"facts": dataclasses.asdict(FACTS)})
                elif self._status > 0:
                    StatusBlock(buffer).publish({"failure": {"code": self._status, "message": "no such topic"}})

            def ended(self) -> int:
                return self._status

        monkeypatch.setattr(start_checks, "Child", Ended)
        signals: Any = SimpleNamespace(take=list, wait=lambda _seconds: None)
        facts = StartChecks(Settings.load(SETTINGS), signals, ReplicaStatus()).run()
        assert left == []
        return facts

    return run_preflight


def test_a_crash_is_followed_by_another_try(preflight: Callable[..., Facts | None]) -> None:
    facts = preflight(-signal.SIGSEGV, 0)
    assert facts is not None
    assert facts.partitions == FACTS.partitions


def test_two_crashes_are_an_error(preflight: Callable[..., Facts | None]) -> None:
    with pytest.raises(BrokerError, match="SIGABRT"):
        preflight(-signal.SIGSEGV, -signal.SIGABRT)


def test_a_failure_with_a_reason_is_not_tried_again(preflight: Callable[..., Facts | None]) -> None:
    with pytest.raises(WorkerError, match="no such topic") as caught:
        preflight(int(ExitCode.BROKER_UNREACHABLE))
    assert caught.value.exit_code == ExitCode.BROKER_UNREACHABLE
