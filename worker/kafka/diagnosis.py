"""What is wrong between us and the broker, in one line that says what to do. Pure."""

from __future__ import annotations

import re
from typing import NamedTuple

from worker.kafka.ports import KafkaFailure

_NOISE = re.compile(r"\s*\(after \d+ms in state \w+[^)]*\)(, \d+ identical error\(s\) suppressed)?$")


class Topic(NamedTuple):
    """A topic that exists. ``operations`` is what this user may do with it, None if the broker does not tell."""

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
    """A topic, the variable that names it, and what we must be allowed to do with it."""

    variable: str
    topic: str
    operation: str


def unreachable(bootstrap: str, trouble: KafkaFailure | None) -> str:
    """Why no broker answers."""
    said = _NOISE.sub("", trouble.message) if trouble else "no answer"
    code = trouble.code if trouble else ""
    if code == "_AUTHENTICATION":
        return (
            f"Kafka at {bootstrap} refuses the credentials ({said}): check KAFKA_CONFIG_SASL_MECHANISM, "
            "KAFKA_CONFIG_SASL_USERNAME and KAFKA_CONFIG_SASL_PASSWORD"
        )
    if code == "_SSL" or "SSL" in said:
        return (
            f"no TLS connection to Kafka at {bootstrap} ({said}): check KAFKA_CONFIG_SECURITY_PROTOCOL and "
            "KAFKA_CONFIG_SSL_CA_LOCATION"
        )
    if code == "_RESOLVE":
        return (
            f"a host of Kafka at {bootstrap} is not known ({said}): check KAFKA_BOOTSTRAP_SERVER, and the broker's "
            "advertised.listeners"
        )
    return (
        f"cannot reach Kafka at {bootstrap} ({said}): check KAFKA_BOOTSTRAP_SERVER, KAFKA_CONFIG_SECURITY_PROTOCOL, "
        "and that the broker runs"
    )


def missing(answer: object) -> bool:
    """Whether the answer is that there is no such topic."""
    return isinstance(answer, KafkaFailure) and answer.code == "UNKNOWN_TOPIC_OR_PART"


def denied(answer: object) -> bool:
    """Whether the answer is that we may not know."""
    return isinstance(answer, KafkaFailure) and answer.code.endswith("_AUTHORIZATION_FAILED")


def topic_problem(need: Need, answer: Topic | KafkaFailure) -> str | None:
    """What keeps us from using a topic. None if nothing does, or if the broker did not get to answer."""
    named = f"topic {need.topic!r} ({need.variable})"
    if missing(answer):
        return f"{named} does not exist: create it, or correct the name"
    lacking = isinstance(answer, Topic) and answer.operations is not None and need.operation not in answer.operations
    if denied(answer) or lacking:
        return f"no permission to {need.operation} {named}: grant it to this user (ACL), or correct the name"
    return None


def group_problem(group: str, answer: Group | KafkaFailure) -> str | None:
    """What keeps us from joining the group. None if nothing does, or if the broker did not get to answer."""
    lacking = isinstance(answer, Group) and answer.operations is not None and "READ" not in answer.operations
    if denied(answer) or lacking:
        return f"no permission to READ group {group!r} (KAFKA_CONSUMER_GROUP_ID): grant it to this user (ACL)"
    return None
