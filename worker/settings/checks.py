"""Checks of settings against each other. Each problem is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from worker.kafka.properties import LONGEST_POLL_INTERVAL
from worker.settings.values import LONGEST_TOPIC, show_duration

# Seconds. The poll thread waits about two seconds in one turn for a broker that does not answer.
SHORTEST_LIVENESS_TIMEOUT = 10.0
# And up to 15 s, for a connection and a statement, in each of its calls of an offset store (worker/stores/sql.py).
SHORTEST_WITH_STORE = 45.0

if TYPE_CHECKING:
    from collections.abc import Iterator


class Topics(Protocol):
    """The settings that ``topics`` checks."""

    @property
    def request_topics(self) -> tuple[str, ...]: ...
    @property
    def ack_topic(self) -> str: ...
    @property
    def dead_letter_topic(self) -> str: ...
    @property
    def state_topic(self) -> str: ...


class Limits(Protocol):
    """The settings that ``limits`` checks. Seconds."""

    @property
    def revoke_hold(self) -> float: ...
    @property
    def revoke_hold_classic(self) -> float: ...
    @property
    def liveness_timeout(self) -> float: ...
    @property
    def offset_store(self) -> str: ...


class Combined(Protocol):
    """The settings that ``combinations`` checks."""

    @property
    def offset_store(self) -> str: ...
    @property
    def store_url(self) -> str: ...
    @property
    def guarantee(self) -> str: ...
    @property
    def ordering(self) -> str: ...
    @property
    def batch_size(self) -> int: ...
    @property
    def peek(self) -> int: ...
    @property
    def static_membership(self) -> str: ...
    @property
    def replica(self) -> str: ...
    @property
    def isolation(self) -> str: ...
    @property
    def task_memory(self) -> int: ...
    @property
    def child_max_tasks(self) -> int: ...
    @property
    def child_max_memory(self) -> int: ...
    @property
    def extra_slots(self) -> int: ...


def topics(settings: Topics) -> Iterator[str]:
    """Check that a replica does not read a topic that it writes to, or it would run its answers as requests."""
    if settings.ack_topic in settings.request_topics:
        yield (
            f"KAFKA_ACK_TOPIC={settings.ack_topic!r} must not be one of KAFKA_REQUEST_TOPIC: "
            "answers would be read as requests"
        )
    if settings.dead_letter_topic in {*settings.request_topics, settings.ack_topic}:
        yield (
            f"KAFKA_DEAD_LETTER_TOPIC={settings.dead_letter_topic!r} must be neither one of KAFKA_REQUEST_TOPIC "
            "nor KAFKA_ACK_TOPIC: choose a separate topic"
        )
    if settings.state_topic in {*settings.request_topics, settings.ack_topic, settings.dead_letter_topic}:
        yield (
            f"KAFKA_STATE_TOPIC={settings.state_topic!r} must be a separate topic: "
            "it is compacted, which would remove requests and answers"
        )
    if len(settings.dead_letter_topic) > LONGEST_TOPIC:
        yield (
            f"KAFKA_DEAD_LETTER_TOPIC is not set, and its default, <first request topic>.dlq, would be longer "
            f"than {LONGEST_TOPIC} characters: set it"
        )


def limits(settings: Limits) -> Iterator[str]:
    """Check that a hold ends within the longest poll interval of librdkafka, 24 h.

    Also check that a process does not count as stuck while its poll thread waits for the broker or the offset store.
    """
    holds = {"WORKER_REVOKE_HOLD": settings.revoke_hold, "WORKER_REVOKE_HOLD_CLASSIC": settings.revoke_hold_classic}
    for name, hold in holds.items():
        if hold > LONGEST_POLL_INTERVAL:
            yield (
                f"{name}={show_duration(hold)} must be at most {show_duration(LONGEST_POLL_INTERVAL)}, "
                "the greatest max.poll.interval.ms of the Kafka client"
            )
    shortest, what = SHORTEST_LIVENESS_TIMEOUT, "the broker"
    if settings.offset_store:
        shortest, what = SHORTEST_WITH_STORE, "the offset store"
    if settings.liveness_timeout < shortest:
        yield (
            f"WORKER_LIVENESS_TIMEOUT={show_duration(settings.liveness_timeout)} must be at least "
            f"{show_duration(shortest)}: a healthy process may wait almost as long for {what}"
        )


def combinations(settings: Combined) -> Iterator[str]:
    """Check for settings that are valid separately but cannot be combined."""
    if settings.offset_store:
        yield from _with_store(settings)
    if settings.store_url and not settings.offset_store:
        yield "WORKER_STORE_URL needs WORKER_OFFSET_STORE=worker.stores.sql:store: set that, or unset both"
    if settings.peek and settings.batch_size > 1:
        yield "WORKER_PEEK is for handlers of single tasks: unset it, or set WORKER_BATCH_SIZE=1"
    yield from _isolation(settings)
    if settings.static_membership == "on" and not settings.replica:
        yield (
            "KAFKA_STATIC_MEMBERSHIP=on needs WORKER_REPLICA: a name that no other replica has and that stays the same "
            "after a restart"
        )


def _isolation(settings: Combined) -> Iterator[str]:
    """Refuse settings that an isolation mode does not support, rather than ignore them."""
    if settings.isolation == "process":
        if settings.batch_size > 1:
            yield (
                "WORKER_ISOLATION=process runs tasks one by one, so that it can tell which one crashed: "
                "unset WORKER_BATCH_SIZE, or set WORKER_ISOLATION=thread"
            )
        if settings.offset_store:
            yield (
                "WORKER_ISOLATION=process cannot share the store's connection with the child process: "
                "unset WORKER_OFFSET_STORE, or set WORKER_ISOLATION=thread"
            )
        return
    needs = {
        "WORKER_TASK_MEMORY": settings.task_memory,
        "WORKER_CHILD_MAX_TASKS": settings.child_max_tasks,
        "WORKER_CHILD_MAX_MEMORY": settings.child_max_memory,
    }
    if settings.extra_slots:
        yield ("WORKER_EXTRA_SLOTS runs each task in a child process: set WORKER_ISOLATION=process")
    for name, value in needs.items():
        if value:
            yield f"{name} works only with child processes: set WORKER_ISOLATION=process, or unset it"


def _with_store(settings: Combined) -> Iterator[str]:
    if settings.guarantee == "at-most-once":
        yield "WORKER_OFFSET_STORE makes results exactly-once: unset WORKER_GUARANTEE, or set exactly-once"
    if settings.ordering != "partition":
        yield f"WORKER_OFFSET_STORE needs WORKER_ORDERING=partition: unset WORKER_ORDERING={settings.ordering!r}"
    if settings.batch_size > 1:
        yield "WORKER_OFFSET_STORE has one transaction per task: unset WORKER_BATCH_SIZE"
