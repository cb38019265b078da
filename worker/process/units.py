"""What one request adds to a transaction: its answer, and its dead letter if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.core.model import Failure
from worker.kafka.ports import Message
from worker.process.letters import DeadLetter, dead_letter, oversized, reduced, size_of

if TYPE_CHECKING:
    from worker.codec import AnswerEncoder
    from worker.core.model import Outcome
    from worker.process.config import ProcessConfig


class Unit(NamedTuple):
    """The messages of one request. ``name`` is the answer's outcome in the contract's words."""

    outcome: Outcome
    messages: tuple[Message, ...]
    name: str

    @property
    def size(self) -> int:
        """Bytes of the values."""
        return sum([len(message.value or b"") for message in self.messages])


class Units:
    """Makes units that fit into their topics. Poll thread."""

    def __init__(self, config: ProcessConfig, encoder: AnswerEncoder) -> None:
        self._config = config
        self._ack_topic, self._limit = config.ack_topic, config.max_answer_bytes
        self._encoder = encoder

    def ok(self, outcome: Outcome) -> Unit:
        """The handler's result; one that no record can hold is a dead letter."""
        key, value = outcome.task.record.key, self._encoder.ok(outcome)
        if size_of(key, value) > self._limit:
            return self._oversized(outcome, len(value))
        return Unit(outcome, (Message(self._ack_topic, key, value),), "OK")

    def dead(self, outcome: Outcome, failure: Failure) -> Unit:
        """A dead letter and the answer that tells of it."""
        outcome.failure, outcome.result = failure, b""
        letter = dead_letter(outcome.task, failure, self._config.max_dead_letter_bytes)
        news = self._news(outcome, failure, "DEAD_LETTERED")
        return Unit(outcome, (Message(self._config.dead_letter_topic, *letter), news), "DEAD_LETTERED")

    def refused(self, outcome: Outcome, failure: Failure, name: str) -> Unit:
        """``EXPIRED`` or ``CANCELLED``."""
        outcome.failure, outcome.result = failure, b""
        return Unit(outcome, (self._news(outcome, failure, name),), name)

    def smaller(self, unit: Unit) -> Unit:
        """What to send instead of a unit that the broker found too large, as its topics have changed meanwhile."""
        if unit.name == "OK":
            return self._oversized(unit.outcome, unit.size)
        return unit._replace(messages=tuple([_smaller(message) for message in unit.messages]))

    def _oversized(self, outcome: Outcome, size: int) -> Unit:
        return self.dead(outcome, oversized(size, self._ack_topic, self._limit))

    def _news(self, outcome: Outcome, failure: Failure, name: str) -> Message:
        """The answer to a request without a result, leaving out what does not fit, the traceback first."""
        key, value = outcome.task.record.key, b""
        for kept in (failure, failure._replace(traceback=""), Failure(failure.type, "")):
            value = self._encoder.unprocessed(outcome, kept, name)
            if size_of(key, value) <= self._limit:
                return Message(self._ack_topic, key, value)
        return Message(self._ack_topic, None, value)


def _smaller(message: Message) -> Message:
    """A dead letter without what can be spared. Answers are as small as they can be."""
    letter = reduced(DeadLetter(message.key, message.value, message.headers)) if message.headers else None
    return Message(message.topic, *letter) if letter else message
