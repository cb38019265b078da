"""Checks before the first worker process starts: is Kafka reachable, do the topics exist, how large may records be?

It runs in a short-lived child process, so that the supervisor never has a client.
"""

from __future__ import annotations

import dataclasses
import time
from typing import TYPE_CHECKING

from worker.core.deadline import Deadline
from worker.errors import BrokerError
from worker.kafka import validate
from worker.kafka.admin import Admin
from worker.kafka.diagnosis import Topic, denied, group_problem, missing, topic_problem, unreachable
from worker.kafka.facts import HEARTBEAT, Facts
from worker.kafka.ports import KafkaFailure

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.kafka.facts import Target

_ATTEMPT = 5.0  # seconds that one request may take, while more than these are left
_LEAST = 1.0  # the least seconds for a request, even if none are left
_PAUSE = 0.2  # between two attempts, in seconds
_USUAL_LIMIT = 1_048_588  # Kafka's default for max.message.bytes
_DEAD_LETTER_ROOM = 64 * 1024  # a dead letter is its request plus headers about the failure
# max.message.bytes limits a whole batch. The batch's header and the length fields are not part of a record.
_BATCH_OVERHEAD = 1_024
_CLASSIC_HEARTBEAT = 3_000  # milliseconds, the client's default


def run(target: Target, report: Callable[[str], None]) -> Facts:
    """Check everything once. Wait up to ``connect_timeout`` seconds for the broker and the topics.

    Create the dead-letter topic if it is missing. Call ``report`` once for each thing that it waits for. Raise
    SettingsError for properties that the client rejects, and BrokerError for a broker or topic that cannot be used.
    Both say what to do.
    """
    validate.check(target)
    return Preflight(target, Admin(target.admin), report).run()


class Preflight:
    """One run of the checks."""

    def __init__(self, target: Target, admin: Admin, report: Callable[[str], None]) -> None:
        self._target = target
        self._admin = admin
        self._report = report
        self._deadline = Deadline.after(target.connect_timeout, time.monotonic())
        self._warnings: list[str] = []
        self._created = False

    def run(self) -> Facts:
        """Run the checks. See the module's ``run``."""
        topics = self._await_topics()
        configs = self._admin.configs(topics, self._timeout())
        self._warn_of_compaction(configs)
        answers = self._room(self._target.ack_topic, configs)
        dead_letters = self._room(self._target.dead_letter_topic, configs)
        self._warn_of_large_requests(dead_letters, configs)
        partitions = sum(topics[name].partitions for name in self._target.request_topics)
        facts = Facts(partitions, answers, dead_letters, tuple(self._warnings))
        if not self._target.state_topic:
            return facts
        states = topics[self._target.state_topic].partitions
        return dataclasses.replace(facts, heartbeat=self._heartbeat(), state_partitions=states)

    def _heartbeat(self) -> float:
        """Return the seconds between two heartbeats of a member, as far as known (``consumer``: the broker decides)."""
        consumers = self._target.consumers
        if "consumer" not in consumers:
            return int(consumers["classic"].get("heartbeat.interval.ms", _CLASSIC_HEARTBEAT)) / 1000
        brokers = self._admin.brokers(self._timeout())
        if isinstance(brokers, KafkaFailure) or not brokers:
            return HEARTBEAT
        config = self._admin.broker_config(brokers[0], self._timeout())
        known = {} if isinstance(config, KafkaFailure) else config
        return int(known.get("group.consumer.heartbeat.interval.ms", HEARTBEAT * 1000)) / 1000

    def _timeout(self) -> float:
        """Return the seconds for the next request."""
        return max(_LEAST, min(_ATTEMPT, self._deadline.remaining(time.monotonic())))

    # -- the topics

    def _await_topics(self) -> dict[str, Topic]:
        before = reported = None
        while True:
            answers = self._admin.topics([need.topic for need in self._target.needs], self._timeout())
            problem = self._problem(answers)
            if problem is None:
                return {name: answer for name, answer in answers.items() if isinstance(answer, Topic)}
            if self._admin.refused:
                raise BrokerError(problem)
            if self._deadline.passed(time.monotonic()):
                raise BrokerError(f"{problem} (waited {self._target.connect_timeout:g} s, see KAFKA_CONNECT_TIMEOUT)")
            if problem == before != reported:  # do not report it if it is gone at the second attempt
                self._report(f"waiting up to {self._target.connect_timeout:g} s: {problem}")
                reported = problem
            before = problem
            time.sleep(_PAUSE)

    def _problem(self, answers: Mapping[str, Topic | KafkaFailure]) -> str | None:
        """Return all reasons not to start, in one line; None if there is none."""
        target = self._target
        problems = {need: topic_problem(need, answers[need.topic]) for need in target.needs}
        model = answers[target.request_topics[0]]
        if missing(answers[target.dead_letter_topic]) and isinstance(model, Topic) and not self._created:
            found = [why for need, why in problems.items() if why and need.topic != target.dead_letter_topic]
            return "; ".join([*found, self._create_dead_letter_topic(model)])
        found = list(dict.fromkeys(filter(None, problems.values())))
        if not found and any(isinstance(answer, KafkaFailure) for answer in answers.values()):
            found.append(unreachable(target.bootstrap, self._admin.trouble))
        if not found:
            return group_problem(target.group, self._admin.group(target.group, self._timeout()))
        return "; ".join(found)

    def _create_dead_letter_topic(self, model: Topic) -> str:
        """Create it like the request topic. Return the remaining problem, even if it is only not visible yet."""
        name = self._target.dead_letter_topic
        config = self._admin.configs([model.name], self._timeout())[model.name]
        limits = {}
        if not isinstance(config, KafkaFailure):
            limits["max.message.bytes"] = str(int(config["max.message.bytes"]) + _DEAD_LETTER_ROOM)
        failure = self._admin.create(model._replace(name=name), limits, self._timeout())
        if failure is None:
            self._created = True
            self._warnings.append(f"created dead-letter topic {name!r} with {model.partitions} partitions")
            return f"topic {name!r} has just been created and cannot be seen yet"
        why = "no permission to create it" if denied(failure) else str(failure)
        return (
            f"dead-letter topic {name!r} does not exist and cannot be created ({why}): create it with "
            f"{model.partitions} partitions, or set KAFKA_DEAD_LETTER_TOPIC"
        )

    # -- sizes

    def _room(self, topic: str, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> int:
        """Return the largest record for a topic, in bytes of key, value and headers."""
        limit = self._limit(topic, configs)
        if limit is None:
            self._warnings.append(f"cannot read the configuration of topic {topic!r}: assuming a limit of 1 MiB")
        ours = int(self._target.producer["message.max.bytes"])
        return min(limit or _USUAL_LIMIT, ours) - _BATCH_OVERHEAD

    def _limit(self, topic: str, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> int | None:
        config = configs[topic]
        return None if isinstance(config, KafkaFailure) else int(config["max.message.bytes"])

    def _warn_of_large_requests(self, dead_letters: int, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> None:
        for topic in self._target.request_topics:
            limit = self._limit(topic, configs)
            if limit is not None and limit > dead_letters + _BATCH_OVERHEAD:
                self._warnings.append(
                    f"topic {topic!r} takes requests of {limit} bytes, dead-letter topic "
                    f"{self._target.dead_letter_topic!r} no more than {dead_letters}: raise its max.message.bytes, "
                    "or KAFKA_CONFIG_MESSAGE_MAX_BYTES if that is less"
                )

    def _warn_of_compaction(self, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> None:
        for topic, config in configs.items():
            if isinstance(config, KafkaFailure):
                continue
            compacted = "compact" in config["cleanup.policy"]
            if topic == self._target.state_topic:
                if not compacted:
                    self._warnings.append(
                        f"topic {topic!r} (KAFKA_STATE_TOPIC) is not compacted: set its cleanup.policy to compact, or "
                        "it grows without end, or loses the checkpoints of long tasks"
                    )
            elif compacted:
                self._warnings.append(
                    f"topic {topic!r} is compacted: of records with the same key only the last one is kept, and "
                    "records without a key are refused"
                )
