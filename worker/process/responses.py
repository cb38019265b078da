"""The messages that one request adds to a transaction: its answer, and its dead letter if it has one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from worker.core.model import Failure
from worker.kafka.ports import Message
from worker.process.dead_letters import DeadLetter, dead_letter, oversized, reduced, size_of
from worker.process.echo import Echo
from worker.process.follow_ups import FollowUps, refused

if TYPE_CHECKING:
    from worker.codec import AnswerEncoder
    from worker.core.model import Outcome
    from worker.process.config import ProcessConfig


class Response(NamedTuple):
    """The messages of one request. ``name`` is the outcome of the answer as on the wire."""

    outcome: Outcome
    messages: tuple[Message, ...]
    name: str
    one_by_one: bool = False  # each message in a separate batch, because the broker has refused a batch

    @property
    def size(self) -> int:
        """Return the bytes of the values."""
        return sum([len(message.value or b"") for message in self.messages])


class ResponseBuilder:
    """Builds responses that fit into their topics. Used on the poll thread."""

    def __init__(self, config: ProcessConfig, encoder: AnswerEncoder) -> None:
        self._config = config
        self._ack_topic, self._limit = config.ack_topic, config.max_answer_bytes
        self._encoder = encoder
        self._echo = Echo(config.echo_headers)
        self._follow_ups = FollowUps(config, self._echo)

    def ok(self, outcome: Outcome) -> Response:
        """Return the follow-up requests and the result; a dead letter if one of them fits into no record."""
        sent = self._follow_ups.messages(outcome) if outcome.sent else []
        if isinstance(sent, Failure):
            return self.dead_letter(outcome, sent)
        value = self._encoder.ok(outcome)
        answer = self._answer(outcome, value)
        return self._oversized(outcome, len(value)) if answer is None else Response(outcome, (*sent, answer), "OK")

    def dead_letter(self, outcome: Outcome, failure: Failure) -> Response:
        """Return a dead letter and the answer that reports it."""
        outcome.failure, outcome.result, outcome.sent = failure, b"", ()
        record = dead_letter(outcome.task, failure, self._config.max_dead_letter_bytes)
        answer = self._failure_answer(outcome, failure, "DEAD_LETTERED")
        return Response(outcome, (Message(self._config.dead_letter_topic, *record), answer), "DEAD_LETTERED")

    def failure(self, outcome: Outcome, failure: Failure, name: str) -> Response:
        """Return an ``EXPIRED`` or ``CANCELLED`` answer."""
        outcome.failure, outcome.result = failure, b""
        return Response(outcome, (self._failure_answer(outcome, failure, name),), name)

    def smaller(self, response: Response) -> Response | None:
        """Return a smaller response after the broker found this one too large: its topics have changed.

        Return None if nothing is left to drop.
        """
        if response.outcome.sent:
            return self.refused(response, "a record is too large for its topic")
        if response.name == "OK":
            return self._oversized(response.outcome, response.size)
        messages = tuple([self._smaller(message, response) for message in response.messages])
        return None if messages == response.messages else response._replace(messages=messages)

    def refused(self, response: Response, reason: str) -> Response:
        """Return what replaces a response whose follow-up requests the broker refused."""
        return self.dead_letter(response.outcome, refused(response.outcome, reason))

    def _smaller(self, message: Message, response: Response) -> Message:
        """Return a dead letter or an answer without its least important part."""
        if message.topic == self._ack_topic:
            return self._smaller_answer(message, response)
        smaller = reduced(DeadLetter(message.key, message.value, message.headers))
        return Message(message.topic, *smaller) if smaller else message

    def _smaller_answer(self, message: Message, response: Response) -> Message:
        outcome, failure = response.outcome, response.outcome.failure or Failure("", "")
        if failure.traceback:
            outcome.failure = failure._replace(traceback="")
            return message._replace(value=self._encoder.unprocessed(outcome, outcome.failure, response.name))
        outcome.failure = failure._replace(message="")
        value = self._encoder.unprocessed(outcome, outcome.failure, response.name)
        return message._replace(key=None, value=value, headers=())

    def _answer(self, outcome: Outcome, value: bytes) -> Message | None:
        """Return the record of an answer with the echoed headers; None if it does not fit into the topic."""
        record = outcome.task.record
        room = self._limit - size_of(record.key, value)
        if room < 0:
            return None
        headers = self._echo.of(record.headers, room) if record.headers else ()
        return Message(self._ack_topic, record.key, value, headers)

    def _oversized(self, outcome: Outcome, size: int) -> Response:
        return self.dead_letter(outcome, oversized(size, self._ack_topic, self._limit))

    def _failure_answer(self, outcome: Outcome, failure: Failure, name: str) -> Message:
        """Return the answer to a request without a result. If it does not fit, the traceback is left out first."""
        value = b""
        for kept in (failure, failure._replace(traceback=""), Failure(failure.type, "")):
            value = self._encoder.unprocessed(outcome, kept, name)
            answer = self._answer(outcome, value)
            if answer is not None:
                return answer
        return Message(self._ack_topic, None, value)
