"""The records of follow-up requests, which a handler sends with ``context.send``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker import headers
from worker.core.model import Failure
from worker.formats import FORMATS
from worker.kafka.ports import Message
from worker.process.dead_letters import size_of

if TYPE_CHECKING:
    from worker.core.model import FollowUp, Headers, Outcome, Record
    from worker.process.config import ProcessConfig
    from worker.process.echo import Echo

# Delivery errors of a whole batch. Only if a record is alone in its batch does the error certainly concern that record,
# and only then does the client tell an invalid record from a timestamp that is wrong because a clock is.
BATCH_CODES = frozenset({"MSG_SIZE_TOO_LARGE", "INVALID_RECORD"})
# Delivery errors that no retry can fix. "_" marks the client's own codes.
REFUSED_CODES = BATCH_CODES | {
    "UNKNOWN_TOPIC_OR_PART",
    "_UNKNOWN_TOPIC",
    "TOPIC_EXCEPTION",
    "TOPIC_AUTHORIZATION_FAILED",
}


class FollowUps:
    """Build the records. Used on the poll thread."""

    def __init__(self, config: ProcessConfig, echo: Echo) -> None:
        self._default_topic = config.request_topics[0]
        self._refused_topics = {config.ack_topic, config.dead_letter_topic}
        self._limit = min(config.max_answer_bytes, config.max_dead_letter_bytes)  # the producer's own limit
        self._encode = FORMATS[config.message_format].encode_request
        self._echo = echo

    def messages(self, outcome: Outcome) -> list[Message] | Failure:
        """Return the records of an outcome's follow-up requests, or the reason why they cannot be sent."""
        messages = []
        for follow_up in outcome.sent:
            message = self._message(follow_up, outcome)
            if isinstance(message, Failure):
                return message
            messages.append(message)
        return messages

    def _message(self, follow_up: FollowUp, outcome: Outcome) -> Message | Failure:
        topic, key, payload = follow_up
        topic = topic or self._default_topic
        if topic in self._refused_topics:
            return Failure("FollowUpRefused", f"context.send to {topic}, which takes no requests")
        value = self._encode(outcome.sequence, payload)
        if not value:
            return Failure("FollowUpRefused", "context.send of an empty payload with sequence 0: the record is empty")
        room = self._limit - size_of(key, value, parent := _parent_of(outcome.task.record))
        if room < 0:
            return Failure("FollowUpRefused", f"context.send of {len(value)} bytes; {self._limit} are allowed")
        given = outcome.task.record.headers
        return Message(topic, key, value, (self._echo.of(given, room) if given else ()) + parent)


def _parent_of(record: Record) -> Headers:
    topic, number = record.partition
    return ((headers.PARENT, f"{topic}/{number}/{record.offset}".encode()),)


def refused(outcome: Outcome, reason: str) -> Failure:
    """Return the failure of a request whose follow-up requests the broker refused."""
    topics = ", ".join(sorted({follow_up.topic or "the request topic" for follow_up in outcome.sent}))
    return Failure("FollowUpRefused", f"context.send to {topics} failed: {reason}")
