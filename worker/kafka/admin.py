"""The administrator's view of a cluster. Each answer is a value: the requested object, or a ``KafkaFailure``.

Only ``create`` and ``delete_group`` change anything, and reading a topic never creates it. Every request has a time-out
in seconds and is repeated while a leader or a coordinator moves.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka as ck
from confluent_kafka import admin

from worker.core.deadline import Deadline
from worker.core.model import Partition
from worker.errors import SettingsError
from worker.kafka import descriptions, validate
from worker.kafka.clients import UNTIMED, failure_of, quiet, without_offsets
from worker.kafka.descriptions import Span
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from concurrent.futures import Future

    from worker.kafka.descriptions import Member
    from worker.kafka.diagnosis import Group, Topic
    from worker.kafka.ports import Position

K = TypeVar("K", bound=Hashable)
_admin: Any = admin  # the package's types do not export the names that it documents
_ALL_DOWN = ck.KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - a public constant of the client in spite of its name
_MOVING = {
    "NOT_LEADER_FOR_PARTITION",
    "LEADER_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "COORDINATOR_NOT_AVAILABLE",
    "COORDINATOR_LOAD_IN_PROGRESS",
}
_GRACE = 0.5  # seconds beyond the client's own time-out until we stop waiting for it
_PAUSE = 0.05  # seconds between two attempts
NO_ANSWER = KafkaFailure("_TIMED_OUT", "no answer")


class Admin:
    """An administrator of one cluster. ``trouble`` is the reason why the last connection failed, or None."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        """Raise SettingsError if librdkafka rejects a property."""
        self.trouble: KafkaFailure | None = None
        self._properties = dict(properties)
        try:
            self._client: Any = admin.AdminClient(quiet(properties, self._on_error))
        except ck.KafkaException as error:
            raise SettingsError(validate.objection(error, properties)) from None

    @property
    def refused(self) -> bool:
        """Return whether a broker has refused our credentials, so that waiting does not help."""
        return self.trouble is not None and self.trouble.code == "_AUTHENTICATION"

    def close(self) -> None:
        """Disconnect now. If this were left to the garbage collector, a thread of the client itself might do it."""
        self._client.__exit__(None, None, None)

    # -- topics

    def topics(self, names: Iterable[str], timeout: float) -> dict[str, Topic | KafkaFailure]:
        """Return each topic by name. The client's ``list_topics(topic)`` would create it if the broker allows that."""
        wanted = ck.TopicCollection(list(dict.fromkeys(names)))  # the client fails on duplicate names
        answers = self._request(
            lambda: self._client.describe_topics(wanted, include_authorized_operations=True, request_timeout=timeout),
            timeout,
        )
        return {name: descriptions.unless_failed(answer, descriptions.topic) for name, answer in answers.items()}

    def configs(self, names: Iterable[str], timeout: float) -> dict[str, dict[str, str] | KafkaFailure]:
        """Return the configuration of each topic by name."""
        return self._configs([_admin.ConfigResource(_admin.ResourceType.TOPIC, name) for name in names], timeout)

    def create(self, topic: Topic, config: Mapping[str, str], timeout: float) -> KafkaFailure | None:
        """Create a topic like ``topic``. An existing topic is not a failure. Replicas -1 means the broker's default."""
        wanted = _admin.NewTopic(topic.name, topic.partitions, topic.replicas, config=dict(config))
        answers = self._request(lambda: self._client.create_topics([wanted], request_timeout=timeout), timeout)
        answer = answers[topic.name]
        failed = isinstance(answer, KafkaFailure) and answer.code != "TOPIC_ALREADY_EXISTS"
        return answer if failed else None

    def spans(self, partitions: Iterable[Partition], timeout: float) -> dict[Partition, Span] | KafkaFailure:
        """Return the offsets of each partition, as a reader of committed records sees them."""
        partitions = list(partitions)
        starts = self._offsets(partitions, _admin.OffsetSpec.earliest(), timeout)
        ends = self._offsets(partitions, _admin.OffsetSpec.latest(), timeout)
        failures = (answer for answer in (*starts.values(), *ends.values()) if isinstance(answer, KafkaFailure))
        failure = next(failures, None)
        return failure or {p: Span(starts[p].offset, ends[p].offset) for p in partitions}

    def offsets_at(
        self, partitions: Iterable[Partition], time_ms: int, timeout: float
    ) -> dict[Partition, int] | KafkaFailure:
        """Return the first offset of each partition at or after ``time_ms`` (epoch); its end if there is none."""
        partitions = list(partitions)
        found = self._offsets(partitions, _admin.OffsetSpec.for_timestamp(time_ms), timeout)
        failure = next((answer for answer in found.values() if isinstance(answer, KafkaFailure)), None)
        spans = failure or self.spans(partitions, timeout)
        if isinstance(spans, KafkaFailure):
            return spans
        return {one: found[one].offset if found[one].offset >= 0 else spans[one].end for one in partitions}

    def newest(self, topics: Iterable[Topic], timeout: float) -> float | None:
        """Return the time of the newest record of these topics in seconds since the epoch; None if unknown."""
        partitions = [Partition(topic.name, number) for topic in topics for number in range(topic.partitions)]
        answers = self._offsets(partitions, _admin.OffsetSpec.max_timestamp(), timeout).values()
        newest = max((answer.timestamp for answer in answers if not isinstance(answer, KafkaFailure)), default=-1)
        return newest / 1000 if newest > 0 else None

    def _offsets(self, partitions: list[Partition], spec: Any, timeout: float) -> dict[Partition, Any]:
        if not partitions:
            return {}
        wanted = {ck.TopicPartition(*partition): spec for partition in partitions}
        committed = ck.IsolationLevel.READ_COMMITTED
        answers = self._request(
            lambda: self._client.list_offsets(wanted, isolation_level=committed, request_timeout=timeout), timeout
        )
        return {Partition(place.topic, place.partition): answer for place, answer in answers.items()}

    # -- brokers

    def brokers(self, timeout: float) -> list[int] | KafkaFailure:
        """Return the numbers of the brokers that are up."""
        answers = self._request(lambda: {"": self._client.describe_cluster(request_timeout=timeout)}, timeout)
        return descriptions.unless_failed(answers[""], lambda cluster: sorted(node.id for node in cluster.nodes))

    def broker_config(self, broker: int, timeout: float) -> dict[str, str] | KafkaFailure:
        """Return the configuration of a broker. Call ``brokers`` first, because the client must know the number."""
        return self._configs([_admin.ConfigResource(_admin.ResourceType.BROKER, str(broker))], timeout)[str(broker)]

    def _configs(self, resources: list[Any], timeout: float) -> dict[str, dict[str, str] | KafkaFailure]:
        answers = self._request(lambda: self._client.describe_configs(resources, request_timeout=timeout), timeout)
        return {
            resource.name: descriptions.unless_failed(answer, descriptions.config)
            for resource, answer in answers.items()
        }

    # -- groups

    def group(self, group: str, timeout: float) -> Group | KafkaFailure:
        """Return the state of a consumer group."""
        return descriptions.unless_failed(self._describe(group, timeout), descriptions.group)

    def members(self, group: str, timeout: float) -> list[Member] | KafkaFailure:
        """Return the members of a group, by client id."""
        return descriptions.unless_failed(
            self._describe(group, timeout), lambda found: sorted(map(descriptions.member, found.members))
        )

    def _describe(self, group: str, timeout: float) -> Any:
        return self._request(
            lambda: self._client.describe_consumer_groups(
                [group], include_authorized_operations=True, request_timeout=UNTIMED
            ),
            timeout,
        )[group]

    def positions(
        self, group: str, partitions: Iterable[Partition], timeout: float
    ) -> dict[Partition, Position | None] | KafkaFailure:
        """Return what the group has committed for each partition; None where it has committed nothing."""
        # Do not use the admin client here: its list_consumer_group_offsets crashes the process while the group's
        # coordinator is not ready (librdkafka issue 5040). A consumer without a subscription does not join the group.
        places = without_offsets(partitions)
        consumer = ck.Consumer(quiet(self._properties, self._on_error) | {"group.id": group})
        try:
            answer = _until_settled(lambda: {"": _committed(consumer, places, timeout)}, timeout)[""]
        finally:
            consumer.close()
        return descriptions.unless_failed(
            answer, lambda found: {Partition(p.topic, p.partition): descriptions.position(p) for p in found}
        )

    def delete_group(self, group: str, timeout: float) -> KafkaFailure | None:
        """Delete an empty group."""
        answers = self._request(lambda: self._client.delete_consumer_groups([group], request_timeout=UNTIMED), timeout)
        return answers[group] if isinstance(answers[group], KafkaFailure) else None

    # -- sending and waiting

    def _request(self, send: Callable[[], Mapping[K, Future[Any]]], timeout: float) -> dict[K, Any]:
        return _until_settled(lambda: self._wait(send(), timeout), timeout)

    def _wait(self, futures: Mapping[K, Future[Any]], timeout: float) -> dict[K, Any]:
        """Return the result of each future, or its failure. Return at once when the credentials are refused."""
        deadline = Deadline.after(timeout + _GRACE, time.monotonic())
        while not (all(future.done() for future in futures.values()) or deadline.passed(time.monotonic())):
            self._client.poll(0.01)  # calls _on_error
            if self.refused:
                break
        return {key: _result(future) for key, future in futures.items()}

    def _on_error(self, error: ck.KafkaError) -> None:
        # "All brokers are down" only repeats that none of them could be reached; the others say why.
        if error.code() != _ALL_DOWN:
            self.trouble = KafkaFailure(error.name(), error.str())


def _until_settled(request: Callable[[], dict[K, Any]], timeout: float) -> dict[K, Any]:
    """Repeat the request until no answer says that a leader or a coordinator moves or is being created."""
    deadline = Deadline.after(timeout, time.monotonic())
    while True:
        answers = request()
        moving = any(isinstance(answer, KafkaFailure) and answer.code in _MOVING for answer in answers.values())
        if not moving or deadline.passed(time.monotonic()):
            return answers
        time.sleep(_PAUSE)


def _committed(consumer: ck.Consumer, places: list[ck.TopicPartition], timeout: float) -> Any:
    try:
        return consumer.committed(places, timeout)
    except ck.KafkaException as error:
        return failure_of(error.args[0])


def _result(future: Future[Any]) -> Any:
    if not future.done():
        return NO_ANSWER
    error = future.exception()
    if error is None:
        return future.result()
    if not isinstance(error, ck.KafkaException):
        raise error
    return failure_of(error.args[0])
