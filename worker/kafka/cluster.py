"""Questions to the broker, for the tools: each has a time-out and ends in a ``BrokerError`` of one line."""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any, NamedTuple, TypeVar

import confluent_kafka as ck
from confluent_kafka import admin

from worker.core.deadline import Deadline
from worker.core.model import Partition
from worker.errors import BrokerError
from worker.kafka.clients import UNTIMED

K = TypeVar("K", bound=Hashable)
_PASSING = (
    ck.KafkaError.NOT_LEADER_FOR_PARTITION,
    ck.KafkaError.LEADER_NOT_AVAILABLE,
    ck.KafkaError.NOT_COORDINATOR,
    ck.KafkaError.COORDINATOR_NOT_AVAILABLE,
    ck.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
)
_ALL_DOWN = ck.KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001 - a public constant of the client in spite of its name
_Spec: Any = admin.OffsetSpec  # type: ignore[attr-defined]  # not exported in the client's types
_EARLIEST, _LATEST = _Spec.earliest(), _Spec.latest()


class Span(NamedTuple):
    """The offsets a partition holds: from ``start`` up to, not including, ``end``."""

    start: int
    end: int


class Member(NamedTuple):
    """One member of a consumer group."""

    client_id: str
    host: str
    partitions: tuple[Partition, ...]


def quiet(properties: Mapping[str, Any], complain: Callable[[ck.KafkaError], None]) -> dict[str, Any]:
    """Properties of a client that hands its troubles to ``complain`` and prints nothing itself."""
    logger = logging.getLogger("worker.kafka.tools")
    logger.disabled = True
    return {**properties, "logger": logger, "error_cb": complain}


def one_line(error: ck.KafkaError | ck.KafkaException) -> str:
    """What the client said, by name and text."""
    cause = error.args[0] if isinstance(error, ck.KafkaException) else error
    return f"{cause.name()}: {cause.str()}"


class Cluster:
    """Asks the broker as an administrator. ``timeout`` is in seconds and holds for each question.

    Topics are looked up in a way that never creates them: ``list_topics(topic)`` of the client does, where the
    broker allows it.
    """

    def __init__(self, properties: Mapping[str, Any], timeout: float = 10.0) -> None:
        self._timeout = timeout
        self._properties = dict(properties)
        self._address = properties.get("bootstrap.servers", "")
        self._complaint: ck.KafkaError | None = None
        self._client = admin.AdminClient(quiet(properties, self._complain))

    def _complain(self, error: ck.KafkaError) -> None:
        # All but "all brokers are down" say why: refused, a wrong password, an unknown host.
        if error.code() != _ALL_DOWN:
            self._complaint = error

    def _ask(self, question: str, ask: Callable[[], Mapping[K, Any]]) -> dict[K, Any]:
        """The results of the futures that ``ask`` returns. Asked again while a leader or coordinator moves."""
        deadline = Deadline.after(self._timeout, time.monotonic())
        while True:
            try:
                return {key: future.result(self._timeout + 1) for key, future in ask().items()}
            except (ck.KafkaException, concurrent.futures.TimeoutError) as error:
                if _code(error) not in _PASSING or deadline.passed(time.monotonic()):
                    raise self._failure(question, error) from error
            time.sleep(0.05)

    def _failure(self, question: str, error: Exception) -> BrokerError:
        self._client.poll(0)  # hears the complaints
        cause = self._complaint or (error if isinstance(error, ck.KafkaException) else None)
        why = one_line(cause) if cause else f"no answer within {self._timeout:g} s"
        return BrokerError(f"{question} failed at Kafka {self._address}: {why}")

    def find(self, topic: str) -> list[Partition] | None:
        """The partitions of a topic, or None if there is no such topic."""
        collection, timeout = ck.TopicCollection([topic]), self._timeout
        try:
            description = self._ask(
                f"looking up topic {topic}",
                lambda: self._client.describe_topics(collection, request_timeout=timeout),
            )[topic]
        except BrokerError as error:
            if _code(error.__cause__) == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                return None
            raise
        return [Partition(topic, number) for number in sorted(found.id for found in description.partitions)]

    def partitions(self, topic: str) -> list[Partition]:
        """The partitions of a topic; a BrokerError if there is no such topic."""
        found = self.find(topic)
        if found is None:
            raise BrokerError(f"there is no topic {topic!r} at Kafka {self._address}: create it, or correct its name")
        return found

    def create(self, topic: str, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Create a topic, if it does not exist, and wait until it can be seen."""
        wanted = admin.NewTopic(  # type: ignore[attr-defined]  # not exported in the client's types
            topic, partitions, config=dict(config or {})
        )
        try:
            self._ask(
                f"creating topic {topic}",
                lambda: self._client.create_topics([wanted], request_timeout=self._timeout),
            )
        except BrokerError as error:
            if _code(error.__cause__) != ck.KafkaError.TOPIC_ALREADY_EXISTS:
                raise
        deadline = Deadline.after(self._timeout, time.monotonic())
        while self.find(topic) is None and not deadline.passed(time.monotonic()):
            time.sleep(0.01)

    def spans(self, partitions: Iterable[Partition]) -> dict[Partition, Span]:
        """What each partition holds, as a reader of committed records sees it."""
        partitions = list(partitions)
        starts = self._offsets(partitions, _EARLIEST)
        ends = self._offsets(partitions, _LATEST)
        return {partition: Span(starts[partition], ends[partition]) for partition in partitions}

    def _offsets(self, partitions: list[Partition], spec: Any) -> dict[Partition, int]:
        if not partitions:
            return {}
        answers = self._ask(
            "asking for offsets",
            lambda: self._client.list_offsets(
                {_position(partition): spec for partition in partitions},
                isolation_level=ck.IsolationLevel.READ_COMMITTED,
                request_timeout=self._timeout,
            ),
        )
        return {Partition(place.topic, place.partition): answer.offset for place, answer in answers.items()}

    def committed(self, group: str, partitions: Iterable[Partition]) -> dict[Partition, int | None]:
        """Where the group goes on in each partition; None where it has committed nothing."""
        # Not by the admin client: its list_consumer_group_offsets crashes the process while the group's coordinator is
        # not ready (librdkafka issue 5040). A consumer that subscribes to nothing does not join the group.
        question, positions = f"asking for the offsets of group {group}", [_position(p) for p in partitions]
        consumer = ck.Consumer(quiet(self._properties, self._complain) | {"group.id": group})
        deadline = Deadline.after(self._timeout, time.monotonic())
        try:
            while True:
                try:
                    answers = consumer.committed(positions, self._timeout)
                    break
                except ck.KafkaException as error:
                    if _code(error) not in _PASSING or deadline.passed(time.monotonic()):
                        raise self._failure(question, error) from error
                time.sleep(0.05)
        finally:
            consumer.close()
        return {Partition(p.topic, p.partition): p.offset if p.offset >= 0 else None for p in answers}

    def members(self, group: str) -> list[Member]:
        """Who is in the group, by client id; nobody if there is no such group."""
        try:
            described = self._ask(
                f"describing group {group}",
                lambda: self._client.describe_consumer_groups([group], request_timeout=UNTIMED),
            )[group]
        except BrokerError as error:
            if _code(error.__cause__) == ck.KafkaError.GROUP_ID_NOT_FOUND:
                return []
            raise
        return sorted(_member(member) for member in described.members)


def _position(partition: Partition) -> ck.TopicPartition:
    return ck.TopicPartition(partition.topic, partition.number)


def _member(member: Any) -> Member:
    places = member.assignment.topic_partitions if member.assignment else []
    return Member(member.client_id, member.host, tuple(sorted(Partition(p.topic, p.partition) for p in places)))


def _code(error: BaseException | None) -> int | None:
    """The client's code of what went wrong, if it was the client that said so."""
    return error.args[0].code() if isinstance(error, ck.KafkaException) else None
