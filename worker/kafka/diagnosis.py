"""Describes problems with the broker, each in one line that says what to do. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from worker.kafka.ports import KafkaFailure

_NOISE = re.compile(r"\s*\(after \d+ms in state \w+[^)]*\)(, \d+ identical error\(s\) suppressed)?$")


class Topic(NamedTuple):
    """An existing topic. ``operations`` are those that this user may perform, None if the broker does not say."""

    name: str
    partitions: int
    replicas: int  # of each partition
    operations: frozenset[str] | None


class Group(NamedTuple):
    """A consumer group; one that does not exist is ``DEAD``. ``operations`` as in ``Topic``."""

    state: str
    type: str  # CLASSIC, CONSUMER, …
    members: int
    operations: frozenset[str] | None


class Need(NamedTuple):
    """A topic, the variable that names it, and the operation that needs permission."""

    variable: str
    topic: str
    operation: str


def unreachable(bootstrap: str, trouble: KafkaFailure | None) -> str:
    """Explain why no broker replies."""
    reason = _NOISE.sub("", trouble.message) if trouble else "no answer"
    code = trouble.code if trouble else ""
    if code == "_AUTHENTICATION":
        return (
            f"Kafka at {bootstrap} refuses the credentials ({reason}): check KAFKA_CONFIG_SASL_MECHANISM, "
            "KAFKA_CONFIG_SASL_USERNAME and KAFKA_CONFIG_SASL_PASSWORD"
        )
    if code == "_SSL" or "SSL" in reason:
        return (
            f"no TLS connection to Kafka at {bootstrap} ({reason}): check KAFKA_CONFIG_SECURITY_PROTOCOL and "
            "KAFKA_CONFIG_SSL_CA_LOCATION"
        )
    if code == "_RESOLVE":
        return (
            f"a host of Kafka at {bootstrap} is not known ({reason}): check KAFKA_BOOTSTRAP_SERVER, and the broker's "
            "advertised.listeners"
        )
    return (
        f"cannot reach Kafka at {bootstrap} ({reason}): check KAFKA_BOOTSTRAP_SERVER, KAFKA_CONFIG_SECURITY_PROTOCOL, "
        "and that the broker runs"
    )


def missing(answer: object) -> bool:
    """Return whether the answer means that the topic does not exist."""
    return isinstance(answer, KafkaFailure) and answer.code == "UNKNOWN_TOPIC_OR_PART"


def denied(answer: object) -> bool:
    """Return whether the answer means that a permission is missing."""
    return isinstance(answer, KafkaFailure) and answer.code.endswith("_AUTHORIZATION_FAILED")


def topic_problem(need: Need, answer: Topic | KafkaFailure) -> str | None:
    """Return why we cannot use a topic. None if we can, or if there was no answer."""
    named = f"topic {need.topic!r} ({need.variable})"
    if missing(answer):
        return f"{named} does not exist: create it, or correct the name"
    lacking = isinstance(answer, Topic) and answer.operations is not None and need.operation not in answer.operations
    if denied(answer) or lacking:
        return f"no permission to {need.operation} {named}: grant it to this user (ACL), or correct the name"
    return None


def group_problem(group: str, answer: Group | KafkaFailure) -> str | None:
    """Return why we cannot join the group. None if we can, or if there was no answer."""
    lacking = isinstance(answer, Group) and answer.operations is not None and "READ" not in answer.operations
    if denied(answer) or lacking:
        return (
            f"no permission to READ group {group!r} (KAFKA_CONSUMER_GROUP_ID) or to DESCRIBE it: "
            "grant both to this user (ACL)"
        )
    return None
