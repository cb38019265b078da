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


# What the contract names and this version has not. As each arrives, its line goes; with the last one, this function.
def not_available_yet(settings: Settings) -> Iterator[str]:
    """Settings that are right and cannot be served yet."""
    if settings.guarantee != "at-least-once":
        yield f"WORKER_GUARANTEE={settings.guarantee!r} is not available yet: leave it out, or set at-least-once"
    if settings.ordering != "partition":
        yield f"WORKER_ORDERING={settings.ordering!r} is not available yet: leave it out, or set partition"
    if settings.batch_size > 1:
        yield f"WORKER_BATCH_SIZE={settings.batch_size} is not available yet: leave it out, or set 1"
