"""Converts the settings to plain values: the target of preflight and the configuration of each worker process."""

from __future__ import annotations

import dataclasses
import socket
from typing import TYPE_CHECKING, Any

from worker.kafka import properties
from worker.kafka.facts import Facts, Target
from worker.kafka.transaction_properties import checker, transactional
from worker.logs import resolve
from worker.process.config import ProcessConfig
from worker.state.config import ReaderConfig

if TYPE_CHECKING:
    from worker.settings import Settings

_HEARTBEATS = 12  # a task of this many heartbeats is long, because moving its partition takes a few of them
_LEAST_LONG = 10.0  # seconds


def target(settings: Settings) -> Target:
    """Return what preflight checks."""
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
        state_topic=settings.state_topic,
    )


def reader_config(settings: Settings, replica: str, facts: Facts, address: str) -> ReaderConfig | None:
    """Return the configuration of the state topic's reader, which listens at ``address``; None without the topic."""
    if not settings.state_topic:
        return None
    return ReaderConfig(
        address,
        settings.state_topic,
        facts.state_partitions,
        properties.common(settings.link(), f"{replica}-states") | {"group.id": settings.group},  # which it never joins
        settings.log_level,
        resolve(settings.log_format),
    )


def process_config(settings: Settings, replica: str, slot: int, facts: Facts, state_address: str = "") -> ProcessConfig:
    """Return the configuration of the process in ``slot`` of the replica named ``replica``.

    A field with the name of a setting gets its value, unless it is converted here. The replica's reader of the state
    topic listens at ``state_address``.
    """
    names = {field.name for field in dataclasses.fields(ProcessConfig)}
    same = {name: getattr(settings, name) for name in names & type(settings).model_fields.keys()}
    link, name = settings.link(), f"{replica}-{slot}"
    rendered: dict[str, Any] = {
        "name": name,
        "slot": slot,
        **_clients(settings, link, name, facts),
        # With a store, this is the guarantee of the answers; the store makes the results exactly-once.
        "guarantee": "at-least-once" if settings.offset_store else settings.guarantee,
        "retry_first": settings.retry_backoff.first,
        "retry_greatest": settings.retry_backoff.greatest,
        "max_answer_bytes": facts.max_answer_bytes,
        "max_dead_letter_bytes": facts.max_dead_letter_bytes,
        "log_format": resolve(settings.log_format),
        "state_partitions": facts.state_partitions,
        "state_address": state_address,
        "long_after": long_after(settings.long_after, facts.heartbeat),
    }
    return ProcessConfig(**{**same, **rendered})


def _clients(settings: Settings, link: properties.Link, name: str, facts: Facts) -> dict[str, Any]:
    """Return the properties of the Kafka clients and related fields."""
    return {
        "consumer_properties": {
            protocol: properties.consumer(link, name, protocol) | _static(settings, protocol, name)
            for protocol in link.holds
        },
        "revoke_hold": {protocol: properties.hold(link, protocol) for protocol in link.holds},
        "producer_properties": _producer(
            settings, link, name, min(facts.max_answer_bytes, facts.max_dead_letter_bytes)
        ),
        "checker_properties": checker(link, f"{name}-checker"),
        "state_properties": properties.producer(link, f"{name}-states") if settings.state_topic else {},
    }


def long_after(setting: float | str, heartbeat: float) -> float:
    """Return the seconds after which a task is long. ``heartbeat`` is the group's interval in seconds."""
    if isinstance(setting, str):
        return max(_LEAST_LONG, _HEARTBEATS * heartbeat)
    return setting


def _static(settings: Settings, protocol: str, name: str) -> properties.Properties:
    """Return the property that makes a process a static member, if the settings say so.

    A static member gets its partitions back right after a restart, but the group keeps them reserved for a while after
    it has left. ``auto`` means only under the classic protocol and with a stable replica name. Under the consumer
    protocol it has no advantage: the supervisor removes a crashed member from the group, static or not.

    With a state topic, members of classic groups are never static. The client id shows who holds a detached task, and a
    classic group keeps the previous process's client id when a static member is restarted.
    """
    if protocol == "classic" and settings.state_topic:
        return {}
    auto = settings.static_membership == "auto" and protocol == "classic" and bool(settings.replica)
    return {"group.instance.id": name} if auto or settings.static_membership == "on" else {}


def _producer(settings: Settings, link: properties.Link, name: str, record_limit: int) -> properties.Properties:
    if settings.guarantee != "exactly-once" or settings.offset_store:
        return properties.producer(link, name, record_limit)
    return transactional(link, name, f"{settings.group}-{name}", record_limit)


def warnings(settings: Settings) -> list[str]:
    """Return a line for each setting that may not have the expected effect."""
    found = properties.warnings(settings.link())
    if settings.task_timeout and settings.isolation == "thread":
        found.append(
            "WORKER_TASK_TIMEOUT only asks a task to stop: set WORKER_ISOLATION=process to end a handler that does not"
        )
    if settings.state_topic and settings.static_membership == "on":
        found.append("KAFKA_STATIC_MEMBERSHIP=on: under the classic protocol KAFKA_STATE_TOPIC turns it off")
    if settings.state_topic and settings.batch_size > 1:
        found.append(
            "KAFKA_STATE_TOPIC: tasks of a batch can be cancelled, but have neither progress nor checkpoints: "
            "set WORKER_BATCH_SIZE=1 for those"
        )
    if settings.batch_size == 1 and settings.model_fields_set & {"batch_wait", "batch_per_partition"}:
        found.append("WORKER_BATCH_WAIT and WORKER_BATCH_PER_PARTITION have no effect: set WORKER_BATCH_SIZE too")
    return found
