"""Whether the settings fit together: what no variable can tell alone. Each problem is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.kafka.properties import LONGEST_POLL_INTERVAL
from worker.settings.values import LONGEST_TOPIC, show_duration

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.settings.model import ClientSettings, Settings


def topics(settings: ClientSettings) -> Iterator[str]:
    """A topic that is read and written by the same replicas would feed them for ever."""
    if settings.ack_topic in settings.request_topics:
        yield (
            f"KAFKA_ACK_TOPIC={settings.ack_topic!r} must not be one of KAFKA_REQUEST_TOPIC: "
            "answers would be taken for requests"
        )
    if settings.dead_letter_topic in {*settings.request_topics, settings.ack_topic}:
        yield (
            f"KAFKA_DEAD_LETTER_TOPIC={settings.dead_letter_topic!r} must be neither one of KAFKA_REQUEST_TOPIC "
            "nor KAFKA_ACK_TOPIC: set a topic of its own"
        )
    if len(settings.dead_letter_topic) > LONGEST_TOPIC:
        yield (
            f"KAFKA_DEAD_LETTER_TOPIC is not set, and its default, <first request topic>.dlq, would be longer "
            f"than {LONGEST_TOPIC} characters: set it"
        )


def limits(settings: Settings) -> Iterator[str]:
    """Librdkafka takes no longer poll interval than 24 h, and a hold must end within it."""
    holds = {"WORKER_REVOKE_HOLD": settings.revoke_hold, "WORKER_REVOKE_HOLD_CLASSIC": settings.revoke_hold_classic}
    for name, hold in holds.items():
        if hold > LONGEST_POLL_INTERVAL:
            yield (
                f"{name}={show_duration(hold)} must be at most {show_duration(LONGEST_POLL_INTERVAL)}, "
                "the greatest max.poll.interval.ms of the Kafka client"
            )


def combinations(settings: Settings) -> Iterator[str]:
    """Settings that are right one by one and cannot be served together."""
    if settings.offset_store:
        yield from _with_store(settings)
    if settings.store_url and not settings.offset_store:
        yield "WORKER_STORE_URL is for WORKER_OFFSET_STORE=worker.stores.sql:store: set that, or leave both out"
    if settings.peek and settings.batch_size > 1:
        yield "WORKER_PEEK shows a handler of single tasks what comes next: leave it out with WORKER_BATCH_SIZE above 1"
    if settings.static_membership == "on" and not settings.replica:
        yield (
            "KAFKA_STATIC_MEMBERSHIP=on needs WORKER_REPLICA: a name that no other replica has and that stays the same "
            "when the replica is started again"
        )


def _with_store(settings: Settings) -> Iterator[str]:
    if settings.guarantee == "at-most-once":
        yield "WORKER_OFFSET_STORE makes results exactly-once: leave WORKER_GUARANTEE out, or set exactly-once"
    if settings.ordering != "partition":
        yield f"WORKER_OFFSET_STORE goes by offsets in order: leave WORKER_ORDERING={settings.ordering!r} out"
    if settings.batch_size > 1:
        yield "WORKER_OFFSET_STORE has one transaction per task: leave WORKER_BATCH_SIZE out"
