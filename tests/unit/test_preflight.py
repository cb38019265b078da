"""How preflight waits, with a broker and a clock that do as they are told."""

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
TOPICS = {name: Topic(name, 4, 1, ALL) for name in ("requests", "answers", "letters")}


class Clock:
    """Time passes when somebody sleeps."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class FakeSurvey:
    """Answers a look at the topics with the next of ``looks``, and then with the last for ever."""

    def __init__(self, clock: Clock, looks: Iterable[Mapping[str, Topic | KafkaFailure]], cost: float = 0.0) -> None:
        self.trouble: KafkaFailure | None = None
        self.refused = False
        self.created: list[Topic] = []
        self.timeouts: list[float] = []
        self._looks = list(looks)
        self._clock = clock
        self._cost = cost

    def topics(self, names: Iterable[str], timeout: float) -> dict[str, Topic | KafkaFailure]:
        self.timeouts.append(timeout)
        self._clock.sleep(min(self._cost, timeout))
        look = self._looks.pop(0) if len(self._looks) > 1 else self._looks[0]
        return {name: look[name] for name in names}

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


def run(survey: Any, said: list[str] | None = None, timeout: float = 60.0) -> Facts:
    admin, producer = {"bootstrap.servers": "kafka:9092"}, {"message.max.bytes": 64 << 20}
    target = Target(("requests",), "answers", "letters", "group", timeout, {}, producer, admin)
    return Preflight(target, survey, (said if said is not None else []).append).run()


def test_what_is_gone_at_the_second_look_is_not_worth_a_line(clock: Clock) -> None:
    """A topic that comes at once is not reported as waited for."""
    said: list[str] = []
    run(FakeSurvey(clock, [TOPICS | {"answers": MISSING}, TOPICS]), said)

    assert said == []


def test_what_lasts_is_said_once(clock: Clock) -> None:
    """Each thing waited for gets one line, however many looks it takes."""
    said: list[str] = []
    looks = [TOPICS | {"answers": MISSING}] * 9 + [dict.fromkeys(TOPICS, SILENCE)] * 9 + [TOPICS]
    run(FakeSurvey(clock, looks), said)

    assert [line.partition(": ")[2][:20] for line in said] == ["topic 'answers' (KAF", "cannot reach Kafka a"]


def test_the_dead_letter_topic_is_made_once(clock: Clock) -> None:
    """Also where it takes a while until it can be seen."""
    survey = FakeSurvey(clock, [TOPICS | {"letters": MISSING}] * 5 + [TOPICS])
    facts = run(survey)

    assert survey.created == [TOPICS["letters"]]
    assert facts.warnings == ("created dead-letter topic 'letters' with 4 partitions",)


def test_it_is_not_made_without_its_model(clock: Clock) -> None:
    """As long as the request topic is missing, nobody knows what the dead-letter topic should be like."""
    survey = FakeSurvey(clock, [TOPICS | {"letters": MISSING, "requests": MISSING}])
    with pytest.raises(BrokerError, match=r"topic 'requests' .* does not exist"):
        run(survey)

    assert survey.created == []


@pytest.mark.parametrize("timeout", [0.5, 7.0, 60.0])
def test_the_time_is_kept(clock: Clock, timeout: float) -> None:
    """No question lasts longer than what is left, but each gets a second, and none more than five."""
    survey = FakeSurvey(clock, [dict.fromkeys(TOPICS, SILENCE)], cost=99.0)
    with pytest.raises(BrokerError, match=r"cannot reach Kafka at kafka:9092 \(no answer\).*waited"):
        run(survey, timeout=timeout)

    assert max(survey.timeouts) <= 5.0
    assert min(survey.timeouts) >= 1.0
    assert timeout <= clock.now - 1000.0 <= timeout + 1.2


def test_refused_credentials_end_it_at_once(clock: Clock) -> None:
    """Waiting would not change them."""
    survey = FakeSurvey(clock, [dict.fromkeys(TOPICS, SILENCE)])
    survey.trouble, survey.refused = KafkaFailure("_AUTHENTICATION", "wrong password"), True
    with pytest.raises(BrokerError, match=r"refuses the credentials \(wrong password\)"):
        run(survey)

    assert clock.now == 1000.0


def test_a_group_that_may_not_be_joined(clock: Clock) -> None:
    """Is waited for like a topic, and named."""
    survey: Any = FakeSurvey(clock, [TOPICS])
    survey.group = lambda *_: KafkaFailure("GROUP_AUTHORIZATION_FAILED", "no")
    with pytest.raises(BrokerError, match="no permission to READ group 'group'"):
        run(survey)
