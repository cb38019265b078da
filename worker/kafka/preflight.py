"""Before the first worker process: can these settings reach Kafka, are the topics there, and how much do they take?

Runs in a short-lived process of its own, so that the supervisor never holds a client.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from worker.core.deadline import Deadline
from worker.errors import BrokerError
from worker.kafka import validate
from worker.kafka.diagnosis import Topic, denied, group_problem, missing, topic_problem, unreachable
from worker.kafka.facts import Facts
from worker.kafka.ports import KafkaFailure
from worker.kafka.survey import Survey

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.kafka.facts import Target

_ATTEMPT = 5.0  # seconds one question may take, while there are more than these left
_LEAST = 1.0  # seconds a question gets, even if none are left
_PAUSE = 0.2  # between two looks
_USUAL_LIMIT = 1_048_588  # Kafka's default for max.message.bytes
_LETTER_ROOM = 64 * 1024  # a dead letter is its request and headers about what went wrong
# max.message.bytes is of a whole batch: its header, the lengths of key, value and headers, are not the record's.
_BATCH_OVERHEAD = 1_024


def run(target: Target, say: Callable[[str], None]) -> Facts:
    """Look at everything once, waiting for the broker and the topics for as long as ``connect_timeout``.

    The dead-letter topic is created if it is missing. ``say`` is told what is waited for, once each. Raises
    SettingsError for properties that the client does not take, BrokerError for a broker or topic that cannot be used,
    with lines on what to do.
    """
    validate.check(target)
    return Preflight(target, Survey(target.admin), say).run()


class Preflight:
    """One run of it."""

    def __init__(self, target: Target, survey: Survey, say: Callable[[str], None]) -> None:
        self._target = target
        self._survey = survey
        self._say = say
        self._deadline = Deadline.after(target.connect_timeout, time.monotonic())
        self._warnings: list[str] = []
        self._created = False

    def run(self) -> Facts:
        """See the module's ``run``."""
        topics = self._await_topics()
        configs = self._survey.configs(topics, self._patience())
        self._warn_of_compaction(configs)
        answers = self._room(self._target.ack_topic, configs)
        letters = self._room(self._target.dead_letter_topic, configs)
        self._warn_of_large_requests(letters, configs)
        partitions = sum(topics[name].partitions for name in self._target.request_topics)
        return Facts(partitions, answers, letters, tuple(self._warnings))

    def _patience(self) -> float:
        """Seconds for the next question."""
        return max(_LEAST, min(_ATTEMPT, self._deadline.remaining(time.monotonic())))

    # -- the topics

    def _await_topics(self) -> dict[str, Topic]:
        before = said = None
        while True:
            answers = self._survey.topics([need.topic for need in self._target.needs], self._patience())
            problem = self._problem(answers)
            if problem is None:
                return {name: answer for name, answer in answers.items() if isinstance(answer, Topic)}
            if self._survey.refused:
                raise BrokerError(problem)
            if self._deadline.passed(time.monotonic()):
                raise BrokerError(f"{problem} (waited {self._target.connect_timeout:g} s, see KAFKA_CONNECT_TIMEOUT)")
            if problem == before != said:  # not worth a line if it is gone at the second look
                self._say(f"waiting up to {self._target.connect_timeout:g} s: {problem}")
                said = problem
            before = problem
            time.sleep(_PAUSE)

    def _problem(self, answers: Mapping[str, Topic | KafkaFailure]) -> str | None:
        """Everything that keeps us from starting, in one line."""
        target = self._target
        problems = {need.topic: topic_problem(need, answers[need.topic]) for need in target.needs}
        model = answers[target.request_topics[0]]
        if missing(answers[target.dead_letter_topic]) and isinstance(model, Topic) and not self._created:
            problems[target.dead_letter_topic] = self._create_dead_letter_topic(model)
        found = list(filter(None, problems.values()))
        if not found and any(isinstance(answer, KafkaFailure) for answer in answers.values()):
            found.append(unreachable(target.bootstrap, self._survey.trouble))
        if not found:
            return group_problem(target.group, self._survey.group(target.group, self._patience()))
        return "; ".join(found)

    def _create_dead_letter_topic(self, model: Topic) -> str:
        """Create it like the request topic; returns what there is to complain about, at least until it can be seen."""
        name = self._target.dead_letter_topic
        config = self._survey.configs([model.name], self._patience())[model.name]
        limits = {}
        if not isinstance(config, KafkaFailure):
            limits["max.message.bytes"] = str(int(config["max.message.bytes"]) + _LETTER_ROOM)
        failure = self._survey.create(model._replace(name=name), limits, self._patience())
        if failure is None:
            self._created = True
            self._warnings.append(f"created dead-letter topic {name!r} with {model.partitions} partitions")
            return f"topic {name!r} has just been created and cannot be seen yet"
        why = "no permission to create it" if denied(failure) else str(failure)
        return (
            f"dead-letter topic {name!r} does not exist and cannot be created ({why}): create it with "
            f"{model.partitions} partitions, or set KAFKA_DEAD_LETTER_TOPIC"
        )

    # -- what they take

    def _room(self, topic: str, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> int:
        """The greatest record for a topic, in bytes of key, value and headers."""
        limit = self._limit(topic, configs)
        if limit is None:
            self._warnings.append(f"cannot read the configuration of topic {topic!r}: taking its limit for 1 MiB")
        ours = int(self._target.producer["message.max.bytes"])
        return min(limit or _USUAL_LIMIT, ours) - _BATCH_OVERHEAD

    def _limit(self, topic: str, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> int | None:
        config = configs[topic]
        return None if isinstance(config, KafkaFailure) else int(config["max.message.bytes"])

    def _warn_of_large_requests(self, letters: int, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> None:
        for topic in self._target.request_topics:
            limit = self._limit(topic, configs)
            if limit is not None and limit > letters + _BATCH_OVERHEAD:
                self._warnings.append(
                    f"topic {topic!r} takes requests of {limit} bytes, dead-letter topic "
                    f"{self._target.dead_letter_topic!r} no more than {letters}: raise its max.message.bytes, "
                    "or KAFKA_CONFIG_MESSAGE_MAX_BYTES if that is less"
                )

    def _warn_of_compaction(self, configs: Mapping[str, dict[str, str] | KafkaFailure]) -> None:
        for topic, config in configs.items():
            if not isinstance(config, KafkaFailure) and "compact" in config["cleanup.policy"]:
                self._warnings.append(
                    f"topic {topic!r} is compacted: of records with the same key only the last one is kept, and "
                    "records without a key are refused"
                )
