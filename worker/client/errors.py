"""The exceptions of a submit or a result. Each message is one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

from worker.errors import WorkerError

if TYPE_CHECKING:
    from worker.client.ids import Origin


class TaskFailed(Exception):  # noqa: N818 - its name is part of the contract
    """The request was answered without a result.

    ``outcome`` is FAILED, DEAD_LETTERED, EXPIRED or CANCELLED. ``error_type`` and ``message`` are the answer's error.
    ``origin`` is the position of the request.
    """

    def __init__(self, outcome: str, error_type: str, message: str, origin: Origin) -> None:
        super().__init__(outcome, error_type, message, origin)  # with all arguments, so that it can be pickled
        self.outcome = outcome
        self.error_type = error_type
        self.message = message
        self.origin = origin

    def __str__(self) -> str:
        reason = ": ".join(part for part in (self.error_type, self.message) if part)
        return f"request {self.origin} was answered {self.outcome}" + (f": {reason}" if reason else "")


class DeliveryError(WorkerError):
    """Kafka has not confirmed the request or its offset. It may have been written anyway, and then it runs."""


class ClientClosedError(WorkerError):
    """The client was closed before the answer came. The request is not affected."""


class TooManyInFlightError(WorkerError):
    """The maximum number of requests is in flight."""
