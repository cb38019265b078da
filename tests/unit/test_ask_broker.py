"""The process that looks at the broker may die of its client: then another one looks, once."""

from __future__ import annotations

import dataclasses
import signal
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from worker.errors import BrokerError, ExitCode, WorkerError
from worker.kafka.facts import Facts
from worker.process.cell import Cell
from worker.settings import Settings
from worker.supervisor import run
from worker.supervisor.board import Board

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
def ask(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Facts | None]:
    """Asks, with children that end like this one after another; one that ends with 0 has the facts."""

    def asked(*statuses: int) -> Facts | None:
        left = list(statuses)

        class Ended:
            def __init__(self, _name: str, _target: str, _about: object, buffer: Any, *_: object) -> None:
                self._status = left.pop(0)
                if self._status == 0:
                    Cell(buffer).publish({"facts": dataclasses.asdict(FACTS)})
                elif self._status > 0:
                    Cell(buffer).publish({"failure": {"code": self._status, "message": "no such topic"}})

            def ended(self) -> int:
                return self._status

        monkeypatch.setattr(run, "Child", Ended)
        signals: Any = SimpleNamespace(take=list, wait=lambda _seconds: None)
        facts = run._ask_broker(Settings.load(SETTINGS), signals, Board())
        assert left == []
        return facts

    return asked


def test_one_that_crashed_is_followed_by_another(ask: Callable[..., Facts | None]) -> None:
    facts = ask(-signal.SIGSEGV, 0)
    assert facts is not None
    assert facts.partitions == FACTS.partitions


def test_after_two_crashes_it_is_over(ask: Callable[..., Facts | None]) -> None:
    with pytest.raises(BrokerError, match="SIGABRT"):
        ask(-signal.SIGSEGV, -signal.SIGABRT)


def test_what_it_says_is_not_asked_again(ask: Callable[..., Facts | None]) -> None:
    with pytest.raises(WorkerError, match="no such topic") as caught:
        ask(int(ExitCode.BROKER_UNREACHABLE))
    assert caught.value.exit_code == ExitCode.BROKER_UNREACHABLE
