"""From the settings to what others are told: preflight its target, each worker process its configuration."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

from worker.kafka import properties
from worker.kafka.facts import Facts, Target
from worker.kafka.transaction_properties import checker, transactional
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


def process_config(settings: Settings, replica: str, slot: int, facts: Facts) -> ProcessConfig:
    """The configuration of the process in a slot of the replica of that name."""
    link, name = settings.link(), f"{replica}-{slot}"
    return ProcessConfig(
        name=name,
        slot=slot,
        group=settings.group,
        request_topics=settings.request_topics,
        ack_topic=settings.ack_topic,
        dead_letter_topic=settings.dead_letter_topic,
        consumer_properties={
            protocol: properties.consumer(link, name, protocol) | _static(settings, protocol, name)
            for protocol in link.holds
        },
        revoke_hold={protocol: properties.hold(link, protocol) for protocol in link.holds},
        producer_properties=_producer(settings, link, name, min(facts.max_answer_bytes, facts.max_dead_letter_bytes)),
        checker_properties=checker(link, f"{name}-checker"),
        handler=settings.handler,
        handler_kwargs=settings.handler_kwargs,
        guarantee=settings.guarantee if not settings.offset_store else "at-least-once",  # of answers: results are safe
        ordering=settings.ordering,
        max_attempts=settings.max_attempts,
        retry_first=settings.retry_backoff.first,
        retry_greatest=settings.retry_backoff.greatest,
        drain_timeout=settings.drain_timeout,
        max_answer_bytes=facts.max_answer_bytes,
        max_dead_letter_bytes=facts.max_dead_letter_bytes,
        log_level=settings.log_level,
        log_format=resolve(settings.log_format),
        batch_size=settings.batch_size,
        batch_wait=settings.batch_wait,
        batch_per_partition=settings.batch_per_partition,
        peek=settings.peek,
        offset_store=settings.offset_store,
        commit_every=settings.commit_every,
        commit_interval=settings.commit_interval,
        commit_mode=settings.commit_mode,
    )


def _static(settings: Settings, protocol: str, name: str) -> properties.Properties:
    """A static member gets its partitions back at once after a crash, but keeps them for a while when it has left.

    ``auto``: where the crash of a dynamic member costs a session time-out and the name is known to come back. Under the
    consumer protocol it is the static member that has to wait for it.
    """
    auto = settings.static_membership == "auto" and protocol == "classic" and bool(settings.replica)
    return {"group.instance.id": name} if auto or settings.static_membership == "on" else {}


def _producer(settings: Settings, link: properties.Link, name: str, record_limit: int) -> properties.Properties:
    if settings.guarantee != "exactly-once" or settings.offset_store:
        return properties.producer(link, name, record_limit)
    return transactional(link, name, f"{settings.group}-{name}", record_limit)


def warnings(settings: Settings) -> list[str]:
    """What in the settings will not do what it seems to."""
    return properties.warnings(settings.link())
