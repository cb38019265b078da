"""How long a process checks its membership after a lost reply to a heartbeat (docs/decisions/0074)."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from worker.core.model import Partition
from worker.kafka import membership_check
from worker.kafka.membership_check import CHECKS, LONGEST_SECONDS, MembershipCheck

OURS = frozenset({Partition("t", 0), Partition("t", 1)})


class Checked(MembershipCheck):
    """A check whose coordinator replies with ``current`` and ``target``."""

    def __init__(self) -> None:
        super().__init__({"group.id": "g"})
        self.joined = True
        self.current = self.target = OURS
        self.described = 0

    def _describe(self) -> Any:
        self.described += 1
        assignments = [
            SimpleNamespace(topic_partitions=[TopicPartition(*one) for one in partitions])
            for partitions in (self.current, self.target)
        ]
        member = SimpleNamespace(member_id="me", assignment=assignments[0], target_assignment=assignments[1])
        return SimpleNamespace(members=[member])

    def once(self) -> None:
        """Ask the coordinator, and compare."""
        self.check("me", OURS)
        for thread in threading.enumerate():
            if thread.name == "membership-check":
                thread.join(5)
        self.check("me", OURS)

    def every_second(self, clock: SimpleNamespace, seconds: int) -> None:
        """Call ``once`` every second."""
        for _ in range(seconds):
            clock.now += 1.0
            self.once()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(membership_check, "time", SimpleNamespace(monotonic=lambda: clock.now))
    return clock


def test_agreement_ends_the_checks_only_after_a_change_was_reported(clock: SimpleNamespace) -> None:
    one = Checked()
    one.request()
    clock.now += LONGEST_SECONDS
    one.once()
    assert (one.pending, one.described) == (True, 1)
    one.change_reported()
    clock.now += LONGEST_SECONDS
    one.once()
    assert (one.pending, one.stale, one.described) == (False, False, 2)


def test_a_missed_change_after_the_first_agreement_is_detected(clock: SimpleNamespace) -> None:
    one = Checked()
    one.request()
    clock.now += LONGEST_SECONDS
    one.once()
    one.target = frozenset()
    for _ in range(CHECKS):
        assert not one.stale
        clock.now += LONGEST_SECONDS
        one.once()
    assert one.stale


def test_the_checks_become_rare_while_client_and_coordinator_agree(clock: SimpleNamespace) -> None:
    one = Checked()
    one.request()
    one.every_second(clock, 3600)
    assert 3600 / LONGEST_SECONDS <= one.described <= 3600 / LONGEST_SECONDS + 5


def test_another_lost_reply_brings_the_next_check_forward(clock: SimpleNamespace) -> None:
    one = Checked()
    one.request()
    one.every_second(clock, 300)
    before = one.described
    one.change_reported()
    one.request()
    clock.now += membership_check.CHECK_SECONDS
    one.once()
    assert (one.described, one.pending) == (before + 1, True)
