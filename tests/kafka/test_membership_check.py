"""The membership check while the broker is frozen. See docs/decisions/0074 for the behaviour of the client."""

from __future__ import annotations

import os
import threading
import time
import uuid
from typing import TYPE_CHECKING

import pytest

from tests.contract.transactions import RealScene, freeze
from tests.kafka_broker import running_broker
from worker.kafka import membership_check, properties
from worker.kafka.membership_check import MembershipCheck

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(90)]

ANSWER = 1.0  # seconds
FROZEN = 1.0  # seconds: the replies come about when the check stops waiting for them, or later


@pytest.fixture
def private_broker() -> Iterator[Broker]:
    with running_broker() as broker:
        yield broker


def test_checks_without_a_reply_leave_no_threads_behind(
    private_broker: Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They do not end the process when the broker continues."""
    monkeypatch.setattr(membership_check, "CHECK_SECONDS", 0.0)
    monkeypatch.setattr(membership_check, "ANSWER_SECONDS", ANSWER)
    link = properties.Link(private_broker.bootstrap, f"g-{uuid.uuid4().hex[:8]}", {}, {"consumer": 60.0})
    one, before = MembershipCheck(properties.consumer(link, "check", "consumer")), threads()
    for number in range(6):
        one.request()
        one.check("member", frozenset())
        time.sleep(0.01 * number)  # the check connects, looks for the coordinator, or has sent its request
        thaw = freeze(private_broker, FROZEN + 0.1 * number)
        wait_for_the_check()
        thaw.join()
        one.check("member", frozenset())
        time.sleep(0.5)
        assert one.pending
        assert threads() == before


@pytest.mark.parametrize("joined", [False, True])
def test_a_member_that_the_group_does_not_know_is_fenced_if_it_had_joined(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, joined: bool
) -> None:
    """A process may wait long to join, for example after a crash under its name. It must not be replaced meanwhile."""
    monkeypatch.setattr(membership_check, "CHECK_SECONDS", 0.0)
    scene = RealScene(broker)
    scene.member()  # so that the group exists
    one = MembershipCheck(properties.consumer(scene.link, "check", "consumer"))
    one.joined = joined
    one.request()
    for _ in range(4 * membership_check.CHECKS):
        one.check("somebody else", frozenset())
        wait_for_the_check()
    scene.close()
    assert (one.stale, one.fenced) == (joined, joined)


def threads() -> int:
    return len(os.listdir("/proc/self/task"))  # noqa: PTH208 - all of them, not only Python's


def wait_for_the_check() -> None:
    for thread in threading.enumerate():
        if thread.name == "membership-check":
            thread.join(ANSWER + 5.0)
            assert not thread.is_alive()
