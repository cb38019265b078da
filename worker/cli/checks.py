"""The checks of ``worker doctor``. Each takes values and returns a verdict with a line of text. Pure."""

from __future__ import annotations

import enum
import math
from typing import TYPE_CHECKING, NamedTuple

from worker.cli.console import count as _count
from worker.errors import ExitCode
from worker.kafka.diagnosis import Group, Need, Topic, denied, group_problem, missing, topic_problem
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Mapping

_CLOCKS_AGREE = 5.0  # seconds a record may be dated ahead of this machine's clock
_RECENT = 60.0  # seconds after which the newest record says nothing about the clocks any more
_DAY = 86_400.0
STATE_BYTES = 1_048_588  # of a record with the largest checkpoint, and Kafka's default for max.message.bytes
_TOPICS = {
    "KAFKA_REQUEST_TOPIC": "request topic",
    "KAFKA_ACK_TOPIC": "ack topic",
    "KAFKA_DEAD_LETTER_TOPIC": "dead-letter topic",
}


class Verdict(enum.Enum):
    """The result of a check."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


class Check(NamedTuple):
    """One line of the report. ``code`` is the exit code of ``worker run`` after a FAIL."""

    verdict: Verdict
    name: str
    text: str
    code: ExitCode = ExitCode.DRAINED


def ok(name: str, text: str) -> Check:
    """Return a check that passed."""
    return Check(Verdict.OK, name, text)


def warn(name: str, text: str) -> Check:
    """Return a warning: the worker would run, but perhaps not as intended."""
    return Check(Verdict.WARN, name, text)


def fail(name: str, text: str, code: ExitCode) -> Check:
    """Return a failure: the worker would not run."""
    return Check(Verdict.FAIL, name, text, code)


def processes(wanted: int, cpus: int, *, chosen: bool) -> Check:
    """Compare the number of processes with the CPUs that this machine or container may use."""
    how = "WORKER_PROCESSES" if chosen else "auto"
    text = f"{wanted} ({how}) on {_count(cpus, 'usable CPU')}"
    return (
        warn("processes", f"{text}: lower WORKER_PROCESSES, because more processes than CPUs slow each other down")
        if wanted > cpus
        else ok("processes", text)
    )


def topic(need: Need, answer: Topic | KafkaFailure, *, created_at_start: bool = False) -> Check:
    """Check whether a topic exists and may be used."""
    name = _TOPICS[need.variable]
    if created_at_start and missing(answer):
        return warn(
            name, f"{need.topic!r} does not exist ({need.variable}): worker run will create it if it is allowed to"
        )
    problem = topic_problem(need, answer) or (str(answer) if isinstance(answer, KafkaFailure) else None)
    if problem is not None:
        return fail(name, problem, ExitCode.BROKER_UNREACHABLE)
    assert isinstance(answer, Topic)
    size = f"{need.topic!r}: {_count(answer.partitions, 'partition')}, {_count(answer.replicas, 'replica')} each"
    if answer.operations is None:
        return warn(name, f"{size}; cannot determine whether this user may {need.operation}")
    return ok(name, f"{size}; this user may {need.operation}")


def state_topic(
    name: str, answer: Topic | KafkaFailure | None, config: Mapping[str, str] | KafkaFailure | None
) -> Check:
    """Check whether the state topic exists, may be read and written, and is compacted. None: not set."""
    if answer is None:
        features = "checkpoints, detached tasks, worker tasks, worker top and worker cancel"
        return ok("state topic", f"none: {features} are off; set KAFKA_STATE_TOPIC to turn them on")
    needs = [Need("KAFKA_STATE_TOPIC", name, operation) for operation in ("READ", "WRITE")]
    problem = next(filter(None, (topic_problem(need, answer) for need in needs)), None)
    if problem is not None or not isinstance(answer, Topic):
        return fail("state topic", problem or str(answer), ExitCode.BROKER_UNREACHABLE)
    size = f"{name!r}: {_count(answer.partitions, 'partition')}, {_count(answer.replicas, 'replica')} each"
    flaw = _flaw_of_state_topic(answer, config)
    if flaw is not None:
        return warn("state topic", f"{size}; {flaw}")
    return ok("state topic", f"{size}, compacted; this user may READ and WRITE")


def _flaw_of_state_topic(answer: Topic, config: Mapping[str, str] | KafkaFailure | None) -> str | None:
    if config is None or isinstance(config, KafkaFailure):
        return f"cannot read its configuration: {config}"
    policy, room = config["cleanup.policy"], int(config["max.message.bytes"])
    if policy != "compact":
        return f"its cleanup.policy is {policy}: set it to compact, or checkpoints are lost or pile up"
    if room < STATE_BYTES:
        return f"its max.message.bytes is {room}: the largest checkpoints need {STATE_BYTES}"
    return "cannot determine whether this user may READ and WRITE" if answer.operations is None else None


def partitions(total: int, wanted: int) -> Check:
    """Check whether every process of a replica can have a partition."""
    text = f"{_count(total, 'partition')} of requests for {_count(wanted, 'process')} per replica"
    if total < wanted:
        return warn("partitions", f"{text}: {wanted - total} will be idle; add partitions or lower WORKER_PROCESSES")
    return ok("partitions", f"{text}: enough for {_count(total // wanted, 'replica')}")


def group(name: str, answer: Group | KafkaFailure) -> Check:
    """Check whether this user may join the group, and how many members it has."""
    problem = group_problem(name, answer)
    if problem is not None:
        return fail("group", problem, ExitCode.BROKER_UNREACHABLE)
    if isinstance(answer, KafkaFailure):
        return warn("group", f"cannot read the state of {name!r}: {answer}")
    if answer.type not in {"CLASSIC", "CONSUMER"}:
        return fail(
            "group",
            f"{name!r} is a group of type {answer.type}: choose another KAFKA_CONSUMER_GROUP_ID",
            ExitCode.BROKER_UNREACHABLE,
        )
    if answer.operations is not None and "DESCRIBE" not in answer.operations:
        return warn(
            "group",
            f"no permission to DESCRIBE group {name!r}: a process that misses a rebalance cannot detect it; "
            "grant DESCRIBE to this user (ACL)",
        )
    if answer.state == "DEAD":
        return ok("group", f"{name!r} does not exist yet")
    return ok("group", f"{name!r} is {answer.state}, {answer.type}, with {_count(answer.members, 'member')}")


def mark_groups(prefix: str, answer: Group | KafkaFailure) -> Check:
    """Check whether this user may use the groups with this prefix, which contain the marks of detached tasks."""
    needs = frozenset({"READ", "DELETE"})
    lacking = needs if denied(answer) else frozenset[str]()
    if isinstance(answer, Group) and answer.operations is not None:
        lacking = needs - answer.operations
    if lacking:
        text = f"no permission to {' and '.join(sorted(lacking))} groups with the prefix {prefix!r}"
        settled = "READ" not in lacking
        trouble = "marks of detached tasks stay until they expire" if settled else "detached tasks cannot be settled"
        return warn("mark groups", f"{text}: {trouble}; grant it to this user (ACL, prefixed)")
    named = f"READ and DELETE groups with the prefix {prefix!r}"
    if isinstance(answer, KafkaFailure):
        return warn("mark groups", f"cannot determine whether this user may {named}: {answer}")
    if answer.operations is None:
        return ok("mark groups", f"if the cluster has ACLs, this user needs to {named}")
    return ok("mark groups", f"this user may {named}")


def protocol(setting: str, failure: KafkaFailure | None) -> Check:
    """Report which group protocol will be used. ``failure`` is why joining with the consumer protocol failed."""
    if setting == "classic":
        return ok("group protocol", "classic, as KAFKA_GROUP_PROTOCOL says")
    if failure is None:
        return ok("group protocol", "consumer")
    unsupported = "UNSUPPORTED" in failure.code or "version not supported" in failure.message
    if not unsupported:
        return warn("group protocol", f"cannot determine whether the broker supports the consumer protocol: {failure}")
    if setting == "auto":
        return warn(
            "group protocol", "classic, because the broker has no consumer protocol: WORKER_REVOKE_HOLD_CLASSIC applies"
        )
    text = "the broker has no consumer protocol: set KAFKA_GROUP_PROTOCOL=auto, or use Kafka 4.0 or later"
    return fail("group protocol", text, ExitCode.BROKER_UNREACHABLE)


def retention(topic: str, config: Mapping[str, str] | KafkaFailure) -> Check:
    """Check whether requests are kept long enough: one that is deleted before it starts is never answered."""
    if isinstance(config, KafkaFailure):
        return warn("retention", f"{topic!r}: cannot read the configuration: {config}")
    seconds, size = int(config["retention.ms"]) / 1000, int(config["retention.bytes"])
    if "compact" in config["cleanup.policy"]:
        return warn("retention", f"{topic!r} is compacted: older requests with the same key are deleted unanswered")
    if size >= 0:
        return warn("retention", f"{topic!r} deletes the oldest requests at {size} bytes a partition, answered or not")
    if seconds < 0:
        return ok("retention", f"{topic!r} keeps requests without a time limit")
    text = f"{topic!r} deletes requests after {_span(seconds)}, answered or not"
    if seconds < _DAY:
        return warn("retention", f"{text}: requests that wait behind long tasks may be lost")
    return ok("retention", text)


def room(topic: str, config: Mapping[str, str] | KafkaFailure) -> Check:
    """Check how large an answer may be."""
    if isinstance(config, KafkaFailure):
        return warn("answer size", f"{topic!r}: cannot read max.message.bytes, 1 MiB is assumed: {config}")
    limit = int(config["max.message.bytes"]) / 1024
    return ok(
        "answer size",
        f"{topic!r} takes answers of up to {limit:,.0f} KiB; requests with larger ones become dead letters",
    )


def clock(now: float, newest: float | None) -> Check | None:
    """Compare the clock with the newest record; None if there is no recent one. Kafka does not report its time."""
    age = math.inf if newest is None else now - newest
    if age > _RECENT:
        return None
    if age < -_CLOCKS_AGREE:
        text = f"the newest record is dated {-age:.0f} s in the future: check the clocks of this machine and its writer"
        return warn("clock", text)
    return ok("clock", f"the newest record is {max(age, 0):.0f} s old")


def _span(seconds: float) -> str:
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
