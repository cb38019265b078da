"""From the settings to what others are told: preflight its target, each worker process its configuration."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from worker.kafka import properties
from worker.kafka.facts import Facts, Target
from worker.logs import resolve
from worker.process.config import ProcessConfig

if TYPE_CHECKING:
    from worker.settings import Settings


def target(settings: Settings) -> Target:
    """What preflight is to reach."""
    link, name = settings.link(), f"{socket.gethostname()}-preflight"
    return Target(
        request_topics=settings.request_topics,
        ack_topic=settings.ack_topic,
        dead_letter_topic=settings.dead_letter_topic,
        group=settings.group,
        connect_timeout=settings.connect_timeout,
        consumers={protocol: properties.consumer(link, name, protocol) for protocol in link.holds},
        producer=properties.producer(link, name),
        admin=properties.common(link, name),
    )


def process_config(settings: Settings, slot: int, facts: Facts) -> ProcessConfig:
    """The configuration of the process in a slot."""
    link, name = settings.link(), f"{socket.gethostname()}-{slot}"
    return ProcessConfig(
        name=name,
        slot=slot,
        group=settings.group,
        request_topics=settings.request_topics,
        ack_topic=settings.ack_topic,
        dead_letter_topic=settings.dead_letter_topic,
        consumer_properties={protocol: properties.consumer(link, name, protocol) for protocol in link.holds},
        revoke_hold={protocol: properties.hold(link, protocol) for protocol in link.holds},
        producer_properties=properties.producer(link, name, min(facts.max_answer_bytes, facts.max_dead_letter_bytes)),
        handler=settings.handler,
        handler_kwargs=settings.handler_kwargs,
        guarantee=settings.guarantee,
        ordering=settings.ordering,
        max_attempts=settings.max_attempts,
        retry_first=settings.retry_backoff.first,
        retry_greatest=settings.retry_backoff.greatest,
        drain_timeout=settings.drain_timeout,
        max_answer_bytes=facts.max_answer_bytes,
        max_dead_letter_bytes=facts.max_dead_letter_bytes,
        log_level=settings.log_level,
        log_format=resolve(settings.log_format),
    )


def warnings(settings: Settings) -> list[str]:
    """What in the settings will not do what it seems to."""
    return properties.warnings(settings.link())
