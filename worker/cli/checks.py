"""What ``worker doctor`` thinks of what it was told: values in, a verdict and a line out. Pure."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from worker.errors import ExitCode
from worker.kafka.diagnosis import Group, Need, Topic, group_problem, missing, topic_problem
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLOCKS_AGREE = 5.0  # seconds a record may be dated ahead of this machine's clock
_RECENT = 60.0  # seconds after which the newest record says nothing about the time any more
_DAY = 86_400.0
_TOPICS = {
    "KAFKA_REQUEST_TOPIC": "request topic",
    "KAFKA_ACK_TOPIC": "ack topic",
    "KAFKA_DEAD_LETTER_TOPIC": "dead-letter topic",
}


class Verdict(enum.Enum):
    """How a check came out."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Check(NamedTuple):
    """One line of the report. ``code`` is how ``worker run`` would end because of a FAIL."""

    verdict: Verdict
    name: str
    text: str
    code: ExitCode = ExitCode.DRAINED


def ok(name: str, text: str) -> Check:
    """All is well."""
    return Check(Verdict.OK, name, text)


def warn(name: str, text: str) -> Check:
    """It would run, but perhaps not as wished."""
    return Check(Verdict.WARN, name, text)


def fail(name: str, text: str, code: ExitCode) -> Check:
    """It would not run."""
    return Check(Verdict.FAIL, name, text, code)


def processes(wanted: int, cpus: int, *, chosen: bool) -> Check:
    """Processes against the CPUs this machine or container may use."""
    how = "WORKER_PROCESSES" if chosen else "auto"
    text = f"{wanted} ({how}) on {_count(cpus, 'usable CPU')}"
    return (
        warn("processes", f"{text}: more processes than CPUs slow each other down")
        if wanted > cpus
        else ok("processes", text)
    )


def topic(need: Need, answer: Topic | KafkaFailure, *, created_at_start: bool = False) -> Check:
    """Whether a topic is there and may be used."""
    name = _TOPICS[need.variable]
    if created_at_start and missing(answer):
        return warn(name, f"{need.topic!r} does not exist ({need.variable}): worker run will create it, if it may")
    problem = topic_problem(need, answer) or (str(answer) if isinstance(answer, KafkaFailure) else None)
    if problem is not None:
        return fail(name, problem, ExitCode.BROKER_UNREACHABLE)
    assert isinstance(answer, Topic)
    size = f"{need.topic!r}: {_count(answer.partitions, 'partition')}, {_count(answer.replicas, 'replica')} each"
    if answer.operations is None:
        return warn(name, f"{size}; cannot tell whether this user may {need.operation}")
    return ok(name, f"{size}; this user may {need.operation}")


def partitions(total: int, wanted: int) -> Check:
    """A process without a partition has nothing to do."""
    text = f"{_count(total, 'partition')} of requests for {_count(wanted, 'process')} per replica"
    if total < wanted:
        return warn("partitions", f"{text}: {wanted - total} will have nothing to do, add partitions or take fewer")
    return ok("partitions", f"{text}: enough for {_count(total // wanted, 'replica')}")


def group(name: str, answer: Group | KafkaFailure) -> Check:
    """Whether the group may be joined, and who is in it."""
    problem = group_problem(name, answer)
    if problem is not None:
        return fail("group", problem, ExitCode.BROKER_UNREACHABLE)
    if isinstance(answer, KafkaFailure):
        return warn("group", f"cannot tell the state of {name!r}: {answer}")
    if answer.type not in {"CLASSIC", "CONSUMER"}:
        return fail("group", f"{name!r} is a group of type {answer.type}: take another", ExitCode.BROKER_UNREACHABLE)
    if answer.state == "DEAD":
        return ok("group", f"{name!r} does not exist yet")
    return ok("group", f"{name!r} is {answer.state}, {answer.type}, with {_count(answer.members, 'member')}")


def protocol(setting: str, failure: KafkaFailure | None) -> Check:
    """Which group protocol will be used; ``failure`` is what came of trying the consumer protocol."""
    if setting == "classic":
        return ok("group protocol", "classic, as KAFKA_GROUP_PROTOCOL says")
    if failure is None:
        return ok("group protocol", "consumer")
    unsupported = "UNSUPPORTED" in failure.code or "version not supported" in failure.message
    if not unsupported:
        return warn("group protocol", f"cannot tell whether the broker has consumer: {failure}")
    if setting == "auto":
        return warn(
            "group protocol", "classic, the broker does not have consumer: holds are WORKER_REVOKE_HOLD_CLASSIC"
        )
    text = "the broker does not have consumer: set KAFKA_GROUP_PROTOCOL=auto, or take Kafka 4.0 or later"
    return fail("group protocol", text, ExitCode.BROKER_UNREACHABLE)


def retention(topic: str, config: Mapping[str, str] | KafkaFailure) -> Check:
    """A request that is deleted before its turn has come is never answered."""
    if isinstance(config, KafkaFailure):
        return warn("retention", f"{topic!r}: cannot read the configuration: {config}")
    seconds, size = int(config["retention.ms"]) / 1000, int(config["retention.bytes"])
    if "compact" in config["cleanup.policy"]:
        return warn("retention", f"{topic!r} is compacted: an older request with the same key is deleted unanswered")
    if size >= 0:
        return warn("retention", f"{topic!r} deletes the oldest requests at {size} bytes a partition, answered or not")
    if seconds < 0:
        return ok("retention", f"{topic!r} keeps requests for ever")
    text = f"{topic!r} deletes requests after {_span(seconds)}, answered or not"
    if seconds < _DAY:
        return warn("retention", f"{text}: what waits behind long tasks may be lost")
    return ok("retention", text)


def room(topic: str, config: Mapping[str, str] | KafkaFailure) -> Check:
    """How large an answer may be."""
    if isinstance(config, KafkaFailure):
        return warn("answer size", f"{topic!r}: cannot read max.message.bytes, 1 MiB is assumed: {config}")
    limit = int(config["max.message.bytes"]) / 1024
    return ok("answer size", f"{topic!r} takes answers up to {limit:,.0f} KiB, larger ones are dead letters")


def clock(now: float, newest: float | None) -> Check:
    """The protocol of Kafka does not tell the time; the date of the newest record may."""
    if newest is None:
        return warn("clock", "cannot tell: the broker does not say its time, there is no record to compare with")
    age = now - newest
    if age < -_CLOCKS_AGREE:
        return warn(
            "clock", f"the newest record is dated {-age:.0f} s in the future: this clock, or its writer's, is wrong"
        )
    if age > _RECENT:
        return warn("clock", f"cannot tell: the broker does not say its time, the newest record is {_span(age)} old")
    return ok("clock", f"the newest record is {max(age, 0):.0f} s old, as it should be")


def _count(number: int, what: str) -> str:
    plural = "" if number == 1 else "es" if what.endswith("s") else "s"
    return f"{number} {what}{plural}"


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
