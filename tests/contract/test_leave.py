"""A killed process leaves its group immediately, by one request that is sent in its name."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import structlog.testing
from confluent_kafka import admin

from tests.contract.transactions import freeze
from tests.kafka_broker import create_topics, running_broker
from tests.secured_broker import secured_broker
from worker.kafka import leave, properties
from worker.kafka.leave import leave_group
from worker.supervisor.child import Child

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(90)]

api: Any = admin
SOON = 15.0  # seconds, enough for a new process on a busy machine; the session time-out is 45 s here
LIMIT = 30.0
PARTITIONS = 4
LOGGING = ("INFO", "json")
PROGRAM = Path(__file__).with_name("member_process.py")


class Process:
    """A member in its own process."""

    def __init__(self, made: dict[str, Any], topic: str) -> None:
        self._states: queue.Queue[tuple[str, int]] = queue.Queue()
        self.member = ""
        self._process = subprocess.Popen([sys.executable, PROGRAM, json.dumps(made), topic], stdout=subprocess.PIPE)
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        with self._process.stdout as lines:
            for line in lines:
                self._states.put(tuple(json.loads(line)))

    def has(self, count: int, within: float = LIMIT) -> bool:
        """Return whether the member has this number of partitions in time."""
        end = time.monotonic() + within
        while (left := end - time.monotonic()) > 0:
            try:
                self.member, partitions = self._states.get(timeout=left)
            except queue.Empty:
                return False
            if partitions == count:
                return True
        return False

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join()


class Group:
    """A group whose members are processes."""

    def __init__(self, bootstrap: str, protocol: str, topic: str, given: dict[str, str] | None = None) -> None:
        self.name, self.protocol, self._topic = f"g-{uuid.uuid4().hex[:8]}", protocol, topic
        self.link = properties.Link(bootstrap, self.name, given or {}, {protocol: 60.0})
        self._members: list[Process] = []

    def member(self, instance: str | None = None) -> Process:
        named = {"group.instance.id": instance} if instance else {}
        self._members.append(Process(properties.consumer(self.link, "contract", self.protocol) | named, self._topic))
        return self._members[-1]

    def leave(self, member: str, instance: str | None = None) -> list[Any]:
        """Leave in the name of this member. Return the lines of the log."""
        with structlog.testing.capture_logs() as events:
            leave_group(properties.common(self.link, "contract"), self.name, self.protocol, member, instance)
        return events

    def close(self) -> None:
        for member in self._members:
            member.kill()


@pytest.fixture(params=["consumer", "classic"])
def group(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Group]:
    one = Group(broker.bootstrap, request.param, broker.topic(PARTITIONS))
    yield one
    one.close()


@pytest.fixture
def consumers(broker: Broker) -> Iterator[Group]:
    """Yield a group under the consumer protocol."""
    one = Group(broker.bootstrap, "consumer", broker.topic(PARTITIONS))
    yield one
    one.close()


def a_peer_gets_the_partitions_of_a_killed_member(group: Group) -> None:
    victim = group.member()
    assert victim.has(PARTITIONS)
    peer = group.member()
    assert peer.has(PARTITIONS // 2)
    assert victim.has(PARTITIONS // 2)
    victim.kill()

    assert group.leave(victim.member) == []
    assert peer.has(PARTITIONS, within=SOON)


def test_a_peer_has_the_partitions_of_a_killed_member_soon(group: Group) -> None:
    a_peer_gets_the_partitions_of_a_killed_member(group)


def test_a_replacement_has_the_partitions_of_a_killed_member_soon(group: Group) -> None:
    victim = group.member()
    assert victim.has(PARTITIONS)
    victim.kill()
    replacement = group.member()

    assert group.leave(victim.member) == []
    assert replacement.has(PARTITIONS, within=SOON)


def test_a_child_process_of_the_supervisor_leaves_for_a_killed_member(group: Group) -> None:
    """The supervisor uses such a child because it has no client itself and never waits for a broker."""
    victim = group.member()
    assert victim.has(PARTITIONS)
    victim.kill()
    replacement = group.member()
    made = properties.common(group.link, "contract")
    child = Child("leave", "worker.kafka.leave:run", made, group.name, group.protocol, victim.member, None, *LOGGING)

    assert replacement.has(PARTITIONS, within=SOON)
    while (status := child.ended()) is None:
        time.sleep(0.01)
    assert status == 0


def test_a_static_members_name_is_free_for_its_replacement(consumers: Group) -> None:
    """Otherwise the broker refuses the name until the session is over."""
    victim = consumers.member("name")
    assert victim.has(PARTITIONS)
    victim.kill()

    assert consumers.leave(victim.member, "name") == []
    assert consumers.member("name").has(PARTITIONS, within=SOON)


def test_a_static_member_stays_if_its_predecessor_leaves_under_its_name(consumers: Group) -> None:
    holder = consumers.member("name")
    assert holder.has(PARTITIONS)

    (event,) = consumers.leave("the member before", "name")
    assert event["event"] == "membership.leave_failed"
    assert not holder.has(0, within=1.0)


def test_a_classic_static_member_keeps_its_partitions_for_its_replacement(broker: Broker) -> None:
    """The replacement takes the name immediately, and the other member keeps its partitions."""
    group = Group(broker.bootstrap, "classic", broker.topic(PARTITIONS))
    victim = group.member("name")
    assert victim.has(PARTITIONS)
    peer = group.member("peer")
    assert peer.has(PARTITIONS // 2)
    victim.kill()

    assert group.leave(victim.member, "name") == []
    assert not peer.has(PARTITIONS, within=1.5)
    assert group.member("name").has(PARTITIONS // 2, within=SOON)
    group.close()


def test_an_unknown_member_is_one_line_in_the_log(group: Group) -> None:
    peer = group.member()
    assert peer.has(PARTITIONS)

    (event,) = group.leave("nobody")
    assert (event["event"], event["member"]) == ("membership.leave_failed", "nobody")
    assert "Unknown" in event["reason"]


def test_a_leave_waits_for_a_frozen_broker_up_to_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """The failure is a line in the log."""
    monkeypatch.setattr(leave, "LIMIT", 3.0)
    monkeypatch.setattr(leave, "ANSWER", 1.0)
    with running_broker() as frozen:
        group = Group(frozen.bootstrap, "consumer", frozen.topic(1))
        thaw = freeze(frozen, 8.0)
        began = time.monotonic()
        (event,) = group.leave("member")
        seconds = time.monotonic() - began
        thaw.join()

    assert event["event"] == "membership.leave_failed"
    assert seconds < leave.LIMIT + leave.MARGIN


# ---------------------------------------------------------------- with TLS and passwords


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Group]:
    """Yield a group on a broker that requires TLS and a password (SASL_SSL, SCRAM-SHA-512)."""
    with secured_broker(tmp_path) as broker:
        create_topics(broker.bootstrap, ["requests"], PARTITIONS, None)
        group = Group(broker.secured_bootstrap, "consumer", "requests", broker.client())
        yield group
        group.close()


def test_a_leave_works_over_tls_and_with_a_password(secured: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    a_peer_gets_the_partitions_of_a_killed_member(secured)

    monkeypatch.setattr(leave, "LIMIT", 2.0)
    secured.link.given["sasl.password"] = "wrong"  # type: ignore[index]  # our own dict
    (event,) = secured.leave("member")
    assert event["event"] == "membership.leave_failed"
    assert "wrong" not in event["reason"]
    assert "Unable to bootstrap" in event["reason"]
