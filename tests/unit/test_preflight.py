"""How preflight waits, with a fake broker and a fake clock."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from worker.errors import BrokerError
from worker.kafka import preflight
from worker.kafka.diagnosis import Group, Topic
from worker.kafka.facts import Facts, Target
from worker.kafka.ports import KafkaFailure
from worker.kafka.preflight import Preflight

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MISSING = KafkaFailure("UNKNOWN_TOPIC_OR_PART", "unknown topic")
SILENCE = KafkaFailure("_TIMED_OUT", "no answer")
ALL = frozenset({"READ", "WRITE"})
CONFIG = {"max.message.bytes": "1048588", "cleanup.policy": "delete"}
TOPICS = {name: Topic(name, 4, 1, ALL) for name in ("requests", "answers", "dead-letters")}


class Clock:
    """Time passes only in ``sleep``."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeAdmin:
    """An admin client. It answers each request for the topics with the next of ``attempts``, and repeats the last."""

    def __init__(self, clock: Clock, attempts: Iterable[Mapping[str, Topic | KafkaFailure]], cost: float = 0.0) -> None:
        self.trouble: KafkaFailure | None = None
        self.refused = False
        self.created: list[Topic] = []
        self.timeouts: list[float] = []
        self._attempts = list(attempts)
        self._clock = clock
        self._cost = cost

    def topics(self, names: Iterable[str], timeout: float) -> dict[str, Topic | KafkaFailure]:
        self.timeouts.append(timeout)
        self._clock.sleep(min(self._cost, timeout))
        attempt = self._attempts.pop(0) if len(self._attempts) > 1 else self._attempts[0]
        return {name: attempt[name] for name in names}

    def configs(self, names: Iterable[str], timeout: float) -> dict[str, dict[str, str]]:
        return dict.fromkeys(names, CONFIG)

    def create(self, topic: Topic, config: Mapping[str, str], timeout: float) -> None:
        self.created.append(topic)

    def group(self, group: str, timeout: float) -> Group:
        return Group("DEAD", "CLASSIC", 0, ALL)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(preflight, "time", clock)
    return clock


def run(fake: Any, reported: list[str] | None = None, timeout: float = 60.0) -> Facts:
    admin, producer = {"bootstrap.servers": "kafka:9092"}, {"message.max.bytes": 64 << 20}
    target = Target(("requests",), "answers", "dead-letters", "group", timeout, {}, producer, admin)
    return Preflight(target, fake, (reported if reported is not None else []).append).run()


def test_a_problem_that_is_gone_at_the_second_attempt_is_not_reported(clock: Clock) -> None:
    """Preflight does not report that it waits for a topic that appears right away."""
    reported: list[str] = []
    run(FakeAdmin(clock, [TOPICS | {"answers": MISSING}, TOPICS]), reported)

    assert reported == []


def test_a_problem_that_lasts_is_reported_once(clock: Clock) -> None:
    """Each problem gets one line for any number of attempts."""
    reported: list[str] = []
    attempts = [TOPICS | {"answers": MISSING}] * 9 + [dict.fromkeys(TOPICS, SILENCE)] * 9 + [TOPICS]
    run(FakeAdmin(clock, attempts), reported)

    assert [line.partition(": ")[2][:20] for line in reported] == ["topic 'answers' (KAF", "cannot reach Kafka a"]


def test_the_dead_letter_topic_is_created_once(clock: Clock) -> None:
    """Preflight does not create it again if it takes a while to appear."""
    fake = FakeAdmin(clock, [TOPICS | {"dead-letters": MISSING}] * 5 + [TOPICS])
    facts = run(fake)

    assert fake.created == [TOPICS["dead-letters"]]
    assert facts.warnings == ("created dead-letter topic 'dead-letters' with 4 partitions",)


def test_the_dead_letter_topic_is_not_created_without_the_request_topic(clock: Clock) -> None:
    """The request topic is the model for the dead-letter topic: its partitions and its limit for records."""
    fake = FakeAdmin(clock, [TOPICS | {"dead-letters": MISSING, "requests": MISSING}])
    with pytest.raises(BrokerError, match=r"topic 'requests' .* does not exist"):
        run(fake)

    assert fake.created == []


@pytest.mark.parametrize("timeout", [0.5, 7.0, 60.0])
def test_preflight_fails_after_its_timeout(clock: Clock, timeout: float) -> None:
    """A request may take the time that is left, but at least one second and at most five."""
    fake = FakeAdmin(clock, [dict.fromkeys(TOPICS, SILENCE)], cost=99.0)
    with pytest.raises(BrokerError, match=r"cannot reach Kafka at kafka:9092 \(no answer\).*waited"):
        run(fake, timeout=timeout)

    assert max(fake.timeouts) <= 5.0
    assert min(fake.timeouts) >= 1.0
    assert timeout <= clock.now - 1000.0 <= timeout + 1.2


def test_refused_credentials_end_preflight_immediately(clock: Clock) -> None:
    """Waiting would not change the credentials."""
    fake = FakeAdmin(clock, [dict.fromkeys(TOPICS, SILENCE)])
    fake.trouble, fake.refused = KafkaFailure("_AUTHENTICATION", "wrong password"), True
    with pytest.raises(BrokerError, match=r"refuses the credentials \(wrong password\)"):
        run(fake)

    assert clock.now == 1000.0


def test_a_group_that_may_not_be_read_is_an_error(clock: Clock) -> None:
    """Preflight waits for the permission as for a topic, and the error names the group."""
    fake: Any = FakeAdmin(clock, [TOPICS])
    fake.group = lambda *_: KafkaFailure("GROUP_AUTHORIZATION_FAILED", "no")
    with pytest.raises(BrokerError, match="no permission to READ group 'group'"):
        run(fake)


class WithStates(FakeAdmin):
    """An admin client with a state topic. The broker returns its configuration unless ``heartbeat`` is None."""

    def __init__(self, clock: Clock, policy: str = "compact", heartbeat: str | None = "1000") -> None:
        super().__init__(clock, [TOPICS | {"states": Topic("states", 6, 1, ALL)}])
        self._policy = policy
        self._heartbeat = heartbeat

    def configs(self, names: Iterable[str], timeout: float) -> dict[str, dict[str, str]]:
        return {name: CONFIG | ({"cleanup.policy": self._policy} if name == "states" else {}) for name in names}

    def brokers(self, timeout: float) -> list[int]:
        return [4]

    def broker_config(self, broker: int, timeout: float) -> dict[str, str] | KafkaFailure:
        if self._heartbeat is None:
            return KafkaFailure("CLUSTER_AUTHORIZATION_FAILED", "no")
        return {"group.consumer.heartbeat.interval.ms": self._heartbeat}


def facts_with_states(fake: Any, *protocols: str) -> Facts:
    consumers: dict[str, dict[str, Any]] = {name: {"heartbeat.interval.ms": 2_000} for name in protocols}
    admin, producer = {"bootstrap.servers": "kafka:9092"}, {"message.max.bytes": 64 << 20}
    target = Target(("requests",), "answers", "dead-letters", "group", 60.0, consumers, producer, admin, "states")
    reported: list[str] = []
    return Preflight(target, fake, reported.append).run()


def test_the_state_topic_and_the_heartbeat_are_read(clock: Clock) -> None:
    facts = facts_with_states(WithStates(clock), "consumer", "classic")
    assert (facts.state_partitions, facts.heartbeat, facts.warnings) == (6, 1.0, ())


def test_the_heartbeat_has_a_default_if_the_broker_does_not_return_it(clock: Clock) -> None:
    """It is the broker's default of 5 seconds. Under the classic protocol the client decides."""
    assert facts_with_states(WithStates(clock, heartbeat=None), "consumer").heartbeat == 5.0
    assert facts_with_states(WithStates(clock, heartbeat=None), "classic").heartbeat == 2.0


def test_a_state_topic_that_is_not_compacted_causes_a_warning(clock: Clock) -> None:
    (warning,) = facts_with_states(WithStates(clock, policy="delete"), "classic").warnings
    assert "'states' (KAFKA_STATE_TOPIC) is not compacted" in warning


def test_a_state_topic_must_exist_and_be_writable(clock: Clock) -> None:
    """Permissions to read and to write are both needed. The error is one line."""
    fake = WithStates(clock)
    fake._attempts = [TOPICS | {"states": Topic("states", 6, 1, frozenset({"READ"}))}]
    with pytest.raises(BrokerError, match=r"^no permission to WRITE topic 'states' \(KAFKA_STATE_TOPIC\)"):
        facts_with_states(fake, "classic")
    fake._attempts = [TOPICS | {"states": MISSING}]
    with pytest.raises(
        BrokerError, match=r"^topic 'states' \(KAFKA_STATE_TOPIC\) does not exist: create it, or [^;]*$"
    ):
        facts_with_states(fake, "classic")
