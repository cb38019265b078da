"""The questions of ``worker doctor``, one after the other; what to think of the answers is in ``checks``."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from worker.cli import checks
from worker.errors import ExitCode, HandlerError, SettingsError
from worker.handlers.loader import load
from worker.kafka import validate
from worker.kafka.diagnosis import Group, Topic, unreachable
from worker.kafka.ports import KafkaFailure
from worker.kafka.probe import joins
from worker.kafka.survey import Survey
from worker.supervisor import render
from worker.supervisor.cpus import available_cpus

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.cli.checks import Check
    from worker.kafka.facts import Target
    from worker.settings import Settings

_PATIENCE = 10.0  # seconds for a question; somebody is waiting


def examine(settings: Settings) -> Iterator[Check]:
    """Every check, as it is made. What follows from a failed one is left out."""
    target, wanted = render.target(settings), _processes(settings)
    for warning in render.warnings(settings):
        yield checks.warn("settings", warning)
    yield from _handler(settings)
    yield checks.processes(wanted, available_cpus(), chosen=settings.processes != "auto")
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
        load(settings.handler, settings.handler_kwargs)
    except HandlerError as error:
        yield checks.fail("handler", str(error), ExitCode.HANDLER_UNLOADABLE)
    else:
        yield checks.ok("handler", f"{settings.handler} can be loaded")


class _Kafka:
    """What the broker is asked."""

    def __init__(self, settings: Settings, target: Target, wanted: int) -> None:
        self._settings = settings
        self._target = target
        self._wanted = wanted
        self._patience = min(_PATIENCE, settings.connect_timeout)
        self._survey = Survey(target.admin)

    def checks(self) -> Iterator[Check]:
        brokers = self._survey.brokers(self._patience)
        if isinstance(brokers, KafkaFailure):
            text = unreachable(self._target.bootstrap, self._survey.trouble)
            yield checks.fail("broker", text, ExitCode.BROKER_UNREACHABLE)
            return
        yield self._broker(brokers)
        answers = self._survey.topics([need.topic for need in self._target.needs], self._patience)
        for need in self._target.needs:
            is_letters = need.topic == self._target.dead_letter_topic
            yield checks.topic(need, answers[need.topic], created_at_start=is_letters)
        found = {name: answer for name, answer in answers.items() if isinstance(answer, Topic)}
        yield from self._topics(found)
        yield from self._group([name for name in self._target.request_topics if name in found])
        yield checks.clock(time.time(), self._survey.newest(found.values(), self._patience))

    def _broker(self, brokers: list[int]) -> Check:
        text = f"{self._target.bootstrap} answers, {len(brokers)} up"
        config = self._survey.broker_config(brokers[0], self._patience)
        if isinstance(config, KafkaFailure):
            return checks.warn("broker", f"{text}; its configuration cannot be read: {config}")
        protocols = config.get("group.coordinator.rebalance.protocols", "classic")
        return checks.ok("broker", f"{text}; group protocols configured: {protocols}")

    def _topics(self, found: dict[str, Topic]) -> Iterator[Check]:
        """Of what is there: is it enough, does it last, does it take answers."""
        requests = [name for name in self._target.request_topics if name in found]
        if requests:
            yield checks.partitions(sum(found[name].partitions for name in requests), self._wanted)
        configs = self._survey.configs(found, self._patience) if found else {}
        for name in requests:
            yield checks.retention(name, configs[name])
        if self._target.ack_topic in found:
            yield checks.room(self._target.ack_topic, configs[self._target.ack_topic])

    def _group(self, requests: list[str]) -> Iterator[Check]:
        answer = self._survey.group(self._target.group, self._patience)
        yield checks.group(self._target.group, answer)
        if self._settings.group_protocol == "classic" or requests:
            yield checks.protocol(self._settings.group_protocol, self._try_consumer(answer, requests))

    def _try_consumer(self, group: Group | KafkaFailure, requests: list[str]) -> KafkaFailure | None:
        in_use = isinstance(group, Group) and group.type == "CONSUMER"  # then nothing needs to be tried
        if in_use or "consumer" not in self._target.consumers:
            return None
        return joins(self._target.consumers["consumer"], requests, self._patience)
