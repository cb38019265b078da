"""The verdicts of ``worker doctor``."""

from __future__ import annotations

import pytest

from worker.cli import checks
from worker.cli.checks import Verdict
from worker.errors import ExitCode
from worker.kafka.diagnosis import Group, Need, Topic
from worker.kafka.ports import KafkaFailure

OK, WARN, FAIL = Verdict.OK, Verdict.WARN, Verdict.FAIL
NEED = Need("KAFKA_ACK_TOPIC", "answers", "WRITE")
DENIED = KafkaFailure("TOPIC_AUTHORIZATION_FAILED", "denied")
MISSING = KafkaFailure("UNKNOWN_TOPIC_OR_PART", "unknown")
FATAL = KafkaFailure("_FATAL", "Fatal error: Broker: API version not supported: ConsumerGroupHeartbeat fatal error")
CONFIG = {
    "cleanup.policy": "delete",
    "retention.ms": "604800000",
    "retention.bytes": "-1",
    "max.message.bytes": "1048588",
}


def topic(*operations: str, partitions: int = 4) -> Topic:
    return Topic("answers", partitions, 3, frozenset(operations))


@pytest.mark.parametrize(("wanted", "cpus", "verdict"), [(2, 2, OK), (1, 2, OK), (3, 2, WARN)])
def test_processes(wanted: int, cpus: int, verdict: Verdict) -> None:
    """More processes than CPUs are worth a warning."""
    assert checks.processes(wanted, cpus, chosen=True).verdict is verdict


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        (topic("WRITE", "DESCRIBE"), OK, "'answers': 4 partitions, 3 replicas each; this user may WRITE"),
        (topic("WRITE", partitions=1), OK, "'answers': 1 partition, 3 replicas each"),
        (Topic("answers", 4, 1, None), WARN, "cannot determine whether this user may WRITE"),
        (topic("READ"), FAIL, "no permission to WRITE topic 'answers' (KAFKA_ACK_TOPIC)"),
        (DENIED, FAIL, "no permission to WRITE"),
        (MISSING, FAIL, "topic 'answers' (KAFKA_ACK_TOPIC) does not exist: create it"),
        (KafkaFailure("_TIMED_OUT", "no answer"), FAIL, "_TIMED_OUT: no answer"),
    ],
)
def test_topics(answer: Topic | KafkaFailure, verdict: Verdict, said: str) -> None:
    """A topic must exist, and this user must have the permission."""
    check = checks.topic(NEED, answer)

    assert check.verdict is verdict
    assert said in check.text
    assert check.code is (ExitCode.BROKER_UNREACHABLE if verdict is FAIL else ExitCode.DRAINED)


def test_a_missing_topic_that_will_be_created_is_only_a_warning() -> None:
    """Any other problem of such a topic is a failure."""
    assert checks.topic(NEED, MISSING, created_at_start=True).verdict is WARN
    assert checks.topic(NEED, DENIED, created_at_start=True).verdict is FAIL


@pytest.mark.parametrize(
    ("total", "wanted", "verdict", "said"),
    [
        (8, 2, OK, "enough for 4 replicas"),
        (2, 2, OK, "enough for 1 replica"),
        (1, 3, WARN, "2 will be idle"),
    ],
)
def test_partitions(total: int, wanted: int, verdict: Verdict, said: str) -> None:
    """A process without a partition is idle."""
    check = checks.partitions(total, wanted)

    assert check.verdict is verdict
    assert said in check.text


ALLOWED = frozenset({"READ", "DESCRIBE"})


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        (Group("STABLE", "CONSUMER", 2, ALLOWED), OK, "'g' is STABLE, CONSUMER, with 2 members"),
        (Group("STABLE", "CONSUMER", 2, frozenset({"READ"})), WARN, "no permission to DESCRIBE group 'g'"),
        (Group("DEAD", "CLASSIC", 0, None), OK, "'g' does not exist yet"),
        (Group("STABLE", "SHARE", 1, None), FAIL, "'g' is a group of type SHARE"),
        (Group("EMPTY", "CONSUMER", 0, frozenset({"DESCRIBE"})), FAIL, "no permission to READ group 'g'"),
        (KafkaFailure("GROUP_AUTHORIZATION_FAILED", "denied"), FAIL, "no permission to READ group 'g'"),
        (KafkaFailure("_TIMED_OUT", "no answer"), WARN, "cannot read the state of 'g'"),
    ],
)
def test_groups(answer: Group | KafkaFailure, verdict: Verdict, said: str) -> None:
    """The group must be a group of consumers, and this user must have the permission."""
    check = checks.group("g", answer)

    assert check.verdict is verdict
    assert said in check.text


@pytest.mark.parametrize(
    ("answer", "verdict", "said"),
    [
        (Group("DEAD", "CLASSIC", 0, frozenset({"READ", "DELETE", "DESCRIBE"})), OK, "may READ and DELETE groups"),
        (Group("DEAD", "CLASSIC", 0, frozenset({"DESCRIBE"})), WARN, "no permission to DELETE and READ groups"),
        (Group("DEAD", "CLASSIC", 0, ALLOWED), WARN, "no permission to DELETE groups"),
        (Group("DEAD", "CLASSIC", 0, None), OK, "if the cluster has ACLs"),
        (KafkaFailure("GROUP_AUTHORIZATION_FAILED", "denied"), WARN, "detached tasks cannot be settled"),
        (KafkaFailure("_TIMED_OUT", "no answer"), WARN, "cannot determine"),
    ],
)
def test_groups_of_marks(answer: Group | KafkaFailure, verdict: Verdict, said: str) -> None:
    """Detached tasks are settled by offsets in separate groups."""
    check = checks.mark_groups("g.detached.", answer)

    assert check.verdict is verdict
    assert said in check.text
    assert "'g.detached.'" in check.text


@pytest.mark.parametrize(
    ("setting", "failure", "verdict", "said"),
    [
        ("classic", None, OK, "classic, as KAFKA_GROUP_PROTOCOL says"),
        ("auto", None, OK, "consumer"),
        ("auto", FATAL, WARN, "classic, because the broker has no consumer protocol"),
        ("auto", KafkaFailure("_UNSUPPORTED_FEATURE", "not there"), WARN, "classic"),
        ("consumer", FATAL, FAIL, "set KAFKA_GROUP_PROTOCOL=auto"),
        ("auto", KafkaFailure("GROUP_AUTHORIZATION_FAILED", "denied"), WARN, "cannot determine"),
    ],
)
def test_group_protocols(setting: str, failure: KafkaFailure | None, verdict: Verdict, said: str) -> None:
    """The protocol follows from the setting and from the result of an attempt to use it."""
    check = checks.protocol(setting, failure)

    assert check.verdict is verdict
    assert check.text.startswith(said) or said in check.text


@pytest.mark.parametrize(
    ("config", "verdict", "said"),
    [
        (CONFIG, OK, "deletes requests after 7 d"),
        (CONFIG | {"retention.ms": "-1"}, OK, "without a time limit"),
        (CONFIG | {"retention.ms": "3600000"}, WARN, "after 1 h, answered or not: requests that wait"),
        (CONFIG | {"retention.bytes": "1000"}, WARN, "at 1000 bytes a partition"),
        (CONFIG | {"cleanup.policy": "compact"}, WARN, "is compacted"),
        (DENIED, WARN, "cannot read the configuration"),
    ],
)
def test_retention(config: dict[str, str] | KafkaFailure, verdict: Verdict, said: str) -> None:
    """A request that Kafka deletes before its turn is lost."""
    check = checks.retention("requests", config)

    assert check.verdict is verdict
    assert said in check.text


STATE_CONFIG = CONFIG | {"cleanup.policy": "compact"}


@pytest.mark.parametrize(
    ("answer", "config", "verdict", "said"),
    [
        (topic("READ", "WRITE"), STATE_CONFIG, OK, "'states': 4 partitions, 3 replicas each, compacted; this user may"),
        (topic("READ", "WRITE"), CONFIG, WARN, "its cleanup.policy is delete: set it to compact"),
        (topic("READ", "WRITE"), CONFIG | {"cleanup.policy": "compact,delete"}, WARN, "is compact,delete: set it"),
        (topic("READ", "WRITE"), STATE_CONFIG | {"max.message.bytes": "5000"}, WARN, "max.message.bytes is 5000"),
        (topic("READ", "WRITE"), DENIED, WARN, "cannot read its configuration"),
        (Topic("states", 1, 1, None), STATE_CONFIG, WARN, "cannot determine whether this user may READ and WRITE"),
        (topic("READ"), STATE_CONFIG, FAIL, "no permission to WRITE topic 'states' (KAFKA_STATE_TOPIC)"),
        (topic("WRITE"), STATE_CONFIG, FAIL, "no permission to READ topic 'states' (KAFKA_STATE_TOPIC)"),
        (MISSING, None, FAIL, "topic 'states' (KAFKA_STATE_TOPIC) does not exist: create it"),
        (KafkaFailure("_TIMED_OUT", "no answer"), None, FAIL, "_TIMED_OUT: no answer"),
        (None, None, OK, "none: checkpoints, detached tasks, worker tasks, worker top and worker cancel are off"),
    ],
)
def test_the_state_topic(
    answer: Topic | KafkaFailure | None, config: dict[str, str] | KafkaFailure | None, verdict: Verdict, said: str
) -> None:
    """The worker reads and writes the topic, which must keep the last record of each key."""
    check = checks.state_topic("states", answer, config)

    assert check.verdict is verdict
    assert said in check.text
    assert check.code is (ExitCode.BROKER_UNREACHABLE if verdict is FAIL else ExitCode.DRAINED)


def test_room() -> None:
    """The check shows the size limit of answers if it can read the configuration."""
    assert checks.room("answers", CONFIG).text.startswith("'answers' takes answers of up to 1,024 KiB")
    assert checks.room("answers", DENIED).verdict is WARN


@pytest.mark.parametrize(
    ("newest", "verdict", "said"),
    [
        (1000.0, OK, "0 s old"),
        (1004.0, OK, "0 s old"),
        (970.0, OK, "30 s old"),
        (1042.0, WARN, "42 s in the future"),
    ],
)
def test_clocks(newest: float, verdict: Verdict, said: str) -> None:
    """A recent record shows whether this clock is right."""
    check = checks.clock(1000.0, newest)

    assert check is not None
    assert check.verdict is verdict
    assert said in check.text


@pytest.mark.parametrize("newest", [None, 1000.0 - 7200])
def test_without_a_recent_record_there_is_no_line_about_the_clock(newest: float | None) -> None:
    """The user could do nothing about a warning."""
    assert checks.clock(1000.0, newest) is None
