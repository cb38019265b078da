"""Looking at the group while the broker stands still: docs/decisions/0074 says what the client does then."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.contract.transactions import RealScene, freeze
from tests.kafka_broker import running_broker
from worker.kafka import properties, standing
from worker.kafka.standing import Standing

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(90)]

ANSWER = 1.0  # seconds
FROZEN = 1.0  # seconds: the answers come while, or after, they are given up


@pytest.fixture
def broker_of_its_own() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker


def test_looks_that_get_no_answer_leave_nothing_behind(
    broker_of_its_own: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor do they end the process, when the broker is back."""
    monkeypatch.setattr(standing, "LOOK_SECONDS", 0.0)
    monkeypatch.setattr(standing, "ANSWER_SECONDS", ANSWER)
    link = properties.Link(broker_of_its_own.bootstrap, f"g-{uuid.uuid4().hex[:8]}", {}, {"consumer": 60.0})
    one, before = Standing(properties.consumer(link, "standing", "consumer")), threads()
    for number in range(6):
        one.doubt()
        one.look("member", frozenset())
        time.sleep(0.01 * number)  # it is connecting, or looking for the coordinator, or has asked
        thaw = freeze(broker_of_its_own, FROZEN + 0.1 * number)
        wait_for_the_look()
        thaw.join()
        one.look("member", frozenset())
        time.sleep(0.5)
        assert one.doubtful
        assert threads() == before


@pytest.mark.parametrize("joined", [False, True])
def test_who_is_not_in_the_group_has_missed_something_if_it_was_before(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    """A process that waits to join for long, as after a crash under its name, is not to be replaced for that."""
    monkeypatch.setattr(standing, "LOOK_SECONDS", 0.0)
    scene = RealScene(broker)
    scene.member()  # so that there is a group to look at
    one = Standing(properties.consumer(scene.link, "standing", "consumer"))
    one.joined = joined
    one.doubt()
    for _ in range(4 * standing.LOOKS):
        one.look("somebody else", frozenset())
        wait_for_the_look()
    scene.close()
    assert (one.stale, one.expelled) == (joined, joined)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - all of them, not only Python's


def wait_for_the_look() -> None:
    for thread in threading.enumerate():
        if thread.name == "standing":
            thread.join(ANSWER + 5.0)
            assert not thread.is_alive()
