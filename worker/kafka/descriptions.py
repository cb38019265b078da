"""Converts the answers of an admin client to our values. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from worker.core.model import Partition
from worker.kafka.diagnosis import Group, Topic
from worker.kafka.ports import KafkaFailure, Position

if TYPE_CHECKING:
    from collections.abc import Callable

V = TypeVar("V")


class Span(NamedTuple):
    """The offsets in a partition, from ``start`` up to but not including ``end``."""

    start: int
    end: int


class Member(NamedTuple):
    """One member of a consumer group."""

    client_id: str
    host: str
    partitions: tuple[Partition, ...]


def unless_failed(answer: Any, make: Callable[[Any], V]) -> V | KafkaFailure:
    """Return the failure, or the result of ``make`` for the answer."""
    return answer if isinstance(answer, KafkaFailure) else make(answer)


def topic(found: Any) -> Topic:
    """Convert the description of a topic."""
    replicas = min((len(partition.replicas) for partition in found.partitions), default=1)
    return Topic(found.name, len(found.partitions), replicas, operations(found))


def config(found: Any) -> dict[str, str]:
    """Convert a configuration, without the sources of its values."""
    return {name: entry.value for name, entry in found.items()}


def group(found: Any) -> Group:
    """Convert the description of a group."""
    return Group(found.state.name, found.type.name, len(found.members), operations(found))


def member(found: Any) -> Member:
    """Convert the description of a member."""
    places = found.assignment.topic_partitions if found.assignment else []
    return Member(found.client_id, found.host, tuple(sorted(Partition(p.topic, p.partition) for p in places)))


def position(found: Any) -> Position | None:
    """Convert a committed offset with its metadata; None if there is none."""
    return Position(found.offset, found.metadata or "") if found.offset >= 0 else None


def operations(found: Any) -> frozenset[str] | None:
    """Return the operations that this user may perform, or None if the broker does not say."""
    allowed = found.authorized_operations
    return None if allowed is None else frozenset(operation.name for operation in allowed)
