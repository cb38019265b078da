"""The broker as an administrator sees it. Answers are values: what was asked for, or the ``KafkaFailure``.

Nothing is changed but by ``create``, and looking at a topic never creates it. Every question has a time-out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import admin

from worker.core.deadline import Deadline
from worker.kafka.clients import UNTIMED
from worker.kafka.cluster import quiet
from worker.kafka.diagnosis import Group, Topic
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from concurrent.futures import Future

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
_ALL_DOWN = ck.KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - a public constant of the client in spite of its name
_admin: Any = admin  # whose types do not export the names it documents
_COORDINATOR_MOVES = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE", "COORDINATOR_LOAD_IN_PROGRESS"}
_GRACE = 0.5  # seconds beyond the client's own time-out until we stop waiting for it


class Survey:
    """Asks one cluster. ``trouble`` is why the last connection failed, None while none has."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self.trouble: KafkaFailure | None = None
        self._client = admin.AdminClient(quiet(properties, self._hear))

    def _hear(self, error: ck.KafkaError) -> None:
        # "All brokers are down" only repeats that none of them could be reached; the others say why.
        if error.code() != _ALL_DOWN:
            self.trouble = KafkaFailure(error.name(), error.str())

    def _wait(self, futures: Mapping[K, Future[Any]], timeout: float) -> dict[K, Any]:
        """The result of each, or its failure. Returns at once when the credentials are refused."""
        deadline = Deadline.after(timeout + _GRACE, time.monotonic())
        while not (all(future.done() for future in futures.values()) or deadline.passed(time.monotonic())):
            self._client.poll(0.01)  # hears the complaints
            if self.refused:
                break
        return {key: _value(future) for key, future in futures.items()}

    @property
    def refused(self) -> bool:
        """Whether a broker has refused our credentials: nothing that waiting would change."""
        return self.trouble is not None and self.trouble.code == "_AUTHENTICATION"

    def topics(self, names: Iterable[str], timeout: float) -> dict[str, Topic | KafkaFailure]:
        """Each topic, by name."""
        answers = self._wait(
            self._client.describe_topics(
                ck.TopicCollection(list(names)), include_authorized_operations=True, request_timeout=timeout
            ),
            timeout,
        )
        return {name: _unless_failed(answer, _topic) for name, answer in answers.items()}

    def configs(self, names: Iterable[str], timeout: float) -> dict[str, dict[str, str] | KafkaFailure]:
        """The configuration of each topic, by name."""
        return self._configs([_admin.ConfigResource(_admin.ResourceType.TOPIC, name) for name in names], timeout)

    def broker_config(self, broker: int, timeout: float) -> dict[str, str] | KafkaFailure:
        """The configuration of a broker. Ask for ``brokers`` before: until then the client knows none by its number."""
        return self._configs([_admin.ConfigResource(_admin.ResourceType.BROKER, str(broker))], timeout)[str(broker)]

    def _configs(self, resources: list[Any], timeout: float) -> dict[str, dict[str, str] | KafkaFailure]:
        answers = self._wait(self._client.describe_configs(resources, request_timeout=timeout), timeout)
        return {resource.name: _unless_failed(answer, _config) for resource, answer in answers.items()}

    def create(self, topic: Topic, config: Mapping[str, str], timeout: float) -> KafkaFailure | None:
        """Create a topic like ``topic``; one that exists already is no failure."""
        wanted = _admin.NewTopic(topic.name, topic.partitions, topic.replicas, config=dict(config))
        answer = self._wait(self._client.create_topics([wanted], request_timeout=timeout), timeout)[topic.name]
        failed = isinstance(answer, KafkaFailure) and answer.code != "TOPIC_ALREADY_EXISTS"
        return answer if failed else None

    def brokers(self, timeout: float) -> list[int] | KafkaFailure:
        """The numbers of the brokers that are up."""
        answer = self._wait({"": self._client.describe_cluster(request_timeout=timeout)}, timeout)[""]
        return _unless_failed(answer, lambda cluster: sorted(node.id for node in cluster.nodes))

    def group(self, group: str, timeout: float) -> Group | KafkaFailure:
        """The state of a consumer group. Asked again while its coordinator moves, or is made for the first time."""
        deadline = Deadline.after(timeout, time.monotonic())
        while True:
            futures = self._client.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=UNTIMED
            )
            answer = self._wait(futures, timeout)[group]
            moving = isinstance(answer, KafkaFailure) and answer.code in _COORDINATOR_MOVES
            if not moving or deadline.passed(time.monotonic()):
                return _unless_failed(answer, _group)
            time.sleep(0.05)

    def newest(self, topics: Iterable[Topic], timeout: float) -> float | None:
        """When the newest record of these topics was written, in seconds since the epoch; None if that is not known."""
        places = {
            ck.TopicPartition(topic.name, number): _admin.OffsetSpec.max_timestamp()
            for topic in topics
            for number in range(topic.partitions)
        }
        answers = self._wait(self._client.list_offsets(places, request_timeout=timeout), timeout)
        stamps = (answer.timestamp for answer in answers.values() if not isinstance(answer, KafkaFailure))
        newest = max(stamps, default=-1)
        return newest / 1000 if newest > 0 else None


def _value(future: Future[Any]) -> Any:
    if not future.done():
        return KafkaFailure("_TIMED_OUT", "no answer")
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, ck.KafkaException):
        raise error
    return KafkaFailure(error.args[0].name(), error.args[0].str(), error.args[0].retriable())


def _unless_failed(answer: Any, make: Callable[[Any], V]) -> V | KafkaFailure:
    return answer if isinstance(answer, KafkaFailure) else make(answer)


def _topic(found: Any) -> Topic:
    replicas = min((len(partition.replicas) for partition in found.partitions), default=1)
    return Topic(found.name, len(found.partitions), replicas, _operations(found))


def _config(found: Any) -> dict[str, str]:
    return {name: entry.value for name, entry in found.items()}


def _group(found: Any) -> Group:
    return Group(found.state.name, found.type.name, len(found.members), _operations(found))


def _operations(found: Any) -> frozenset[str] | None:
    operations = found.authorized_operations
    return None if operations is None else frozenset(operation.name for operation in operations)
