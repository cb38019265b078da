"""Makes the requests of ``worker doctor``, one after the other. ``checks`` evaluates the results."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from worker.cli import checks, isolation_checks
from worker.errors import ExitCode, HandlerError, SettingsError
from worker.kafka import validate
from worker.kafka.admin import Admin
from worker.kafka.cluster import try_consumer_protocol
from worker.kafka.diagnosis import Group, Topic, unreachable
from worker.kafka.ports import KafkaFailure
from worker.stores.loading import load as load_store
from worker.stores.port import StoreError, StoreUnavailableError
from worker.supervisor import render
from worker.supervisor.cpus import available_cpus
from worker.supervisor.start_checks import check_handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.cli.checks import Check
    from worker.kafka.facts import Target
    from worker.settings import Settings

_TIMEOUT = 10.0  # seconds per request, because a user is waiting


def examine(settings: Settings) -> Iterator[Check]:
    """Yield the checks, one at a time. Checks that depend on a failed one are left out."""
    target, wanted = render.target(settings), _processes(settings)
    for warning in render.warnings(settings):
        yield checks.warn("settings", warning)
    yield from _handler(settings)
    if settings.offset_store:
        yield _store(settings)
    yield checks.processes(wanted, available_cpus(), chosen=settings.processes != "auto")
    if settings.isolation == "process":
        yield from isolation_checks.examine(settings, wanted)
    try:
        validate.check(target)
    except SettingsError as error:
        for line in str(error).splitlines():
            yield checks.fail("settings", line, ExitCode.SETTINGS_INVALID)
        return
    yield from _Kafka(settings, target, wanted).checks()


def _processes(settings: Settings) -> int:
    return available_cpus() if settings.processes == "auto" else settings.processes


def _handler(settings: Settings) -> Iterator[Check]:
    try:
        check_handler(settings)
    except HandlerError as error:
        yield checks.fail("handler", str(error), ExitCode.HANDLER_UNLOADABLE)
    else:
        yield checks.ok("handler", f"{settings.handler} can be loaded")


def _store(settings: Settings) -> Check:
    """Create the offset store, as a worker process does."""
    try:
        load_store(settings.offset_store, settings.group).close()
    except StoreUnavailableError as error:  # worker run would wait for it
        return checks.warn("offset store", str(error))
    except StoreError as error:
        return checks.fail("offset store", str(error), error.exit_code)
    return checks.ok("offset store", f"{settings.offset_store} can be used")


class _Kafka:
    """The checks that need the broker."""

    def __init__(self, settings: Settings, target: Target, wanted: int) -> None:
        self._settings = settings
        self._target = target
        self._wanted = wanted
        self._timeout = min(_TIMEOUT, settings.connect_timeout)
        self._admin = Admin(target.admin)

    def checks(self) -> Iterator[Check]:
        brokers = self._admin.brokers(self._timeout)
        if isinstance(brokers, KafkaFailure):
            text = unreachable(self._target.bootstrap, self._admin.trouble)
            yield checks.fail("broker", text, ExitCode.BROKER_UNREACHABLE)
            return
        yield self._broker(brokers)
        answers = self._admin.topics([need.topic for need in self._target.needs], self._timeout)
        for need in self._target.needs:
            if need.topic == self._target.state_topic:
                continue  # a separate check covers this topic
            is_dead_letters = need.topic == self._target.dead_letter_topic
            yield checks.topic(need, answers[need.topic], created_at_start=is_dead_letters)
        found = {name: answer for name, answer in answers.items() if isinstance(answer, Topic)}
        yield from self._topics(found)
        yield self._state_topic(answers.get(self._target.state_topic))
        yield from self._group([name for name in self._target.request_topics if name in found])
        clock = checks.clock(time.time(), self._admin.newest(found.values(), self._timeout))
        if clock is not None:
            yield clock

    def _broker(self, brokers: list[int]) -> Check:
        text = f"{self._target.bootstrap} answers, {len(brokers)} up"
        config = self._admin.broker_config(brokers[0], self._timeout)
        if isinstance(config, KafkaFailure):
            return checks.warn("broker", f"{text}; its configuration cannot be read: {config}")
        protocols = config.get("group.coordinator.rebalance.protocols", "classic")
        return checks.ok("broker", f"{text}; group protocols configured: {protocols}")

    def _topics(self, found: dict[str, Topic]) -> Iterator[Check]:
        """Check whether the existing topics have enough partitions, retention, and room for answers."""
        requests = [name for name in self._target.request_topics if name in found]
        if requests:
            yield checks.partitions(sum(found[name].partitions for name in requests), self._wanted)
        configs = self._admin.configs(found, self._timeout) if found else {}
        for name in requests:
            yield checks.retention(name, configs[name])
        if self._target.ack_topic in found:
            yield checks.room(self._target.ack_topic, configs[self._target.ack_topic])

    def _state_topic(self, answer: Topic | KafkaFailure | None) -> Check:
        name = self._target.state_topic
        config = self._admin.configs([name], self._timeout)[name] if isinstance(answer, Topic) else None
        return checks.state_topic(name, answer, config)

    def _group(self, requests: list[str]) -> Iterator[Check]:
        answer = self._admin.group(self._target.group, self._timeout)
        yield checks.group(self._target.group, answer)
        if self._target.state_topic:
            prefix = f"{self._target.group}.detached."
            yield checks.mark_groups(prefix, self._admin.group(f"{prefix}doctor", self._timeout))
        if self._settings.group_protocol == "classic" or requests:
            yield checks.protocol(self._settings.group_protocol, self._try_consumer(answer, requests))

    def _try_consumer(self, group: Group | KafkaFailure, requests: list[str]) -> KafkaFailure | None:
        in_use = isinstance(group, Group) and group.type == "CONSUMER"  # then there is nothing to try
        if in_use or "consumer" not in self._target.consumers:
            return None
        return try_consumer_protocol(self._target.consumers["consumer"], requests, self._timeout)
