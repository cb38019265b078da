"""Runs one attempt of one task and turns whatever happens into an Outcome. Never raises."""

from __future__ import annotations

import os
import time
import traceback
from typing import TYPE_CHECKING, Any

from worker.codec import MalformedError, decode_request
from worker.core.model import Failure, Outcome, Verdict
from worker.errors import Reject, Retry
from worker.handlers.context import Context

if TYPE_CHECKING:
    from worker.core.model import Task
    from worker.handlers.context import Reason
    from worker.handlers.loader import Handler

TRACEBACK_LIMIT = 16_000  # characters kept, from the end: the answer must fit into a record
MESSAGE_LIMIT = 2_000
LONGEST_DELAY = 86_400.0  # seconds a handler may ask to wait; also what becomes of "for ever"


class Runner:
    """Calls the handler. ``run`` belongs to the service thread; ``running`` and ``cancel`` to the poll thread."""

    def __init__(self, handler: Handler, kwargs: dict[str, Any]) -> None:
        self._handler = handler
        self._kwargs = kwargs
        self._current: tuple[Task, Context, float] | None = None
        self._forked = False
        self._cpu = 0.0  # of the service thread when the last attempt ended
        os.register_at_fork(after_in_child=self._note_fork)

    def _note_fork(self) -> None:
        self._forked = True

    @property
    def running(self) -> tuple[Task, float] | None:
        """The running task and for how many seconds it has run, or None."""
        current = self._current
        return None if current is None else (current[0], time.perf_counter() - current[2])

    def cancel(self, reason: Reason, task: Task) -> None:
        """Ask the task to stop, if it is the one that runs."""
        current = self._current
        if current is not None and current[0] is task:
            current[1].cancelled.set(reason)

    def begin(self) -> None:
        """The service thread is about to run tasks one after another."""
        self._cpu = time.thread_time()

    def run(self, task: Task) -> Outcome:
        """One attempt."""
        try:
            request = decode_request(task.record.value)
        except MalformedError as error:
            return Outcome(task, Verdict.REJECTED, failure=Failure("MalformedRequest", str(error)))
        task.attempt += 1
        context = Context(task)
        outcome = Outcome(task, Verdict.OK, sequence=request.sequence)
        outcome.started_ns = time.time_ns()
        started = time.perf_counter()
        self._current = (task, context, started)
        try:
            outcome.result = _as_bytes(self._handler(request, context, **self._kwargs))
        except BaseException as error:  # noqa: BLE001 - sys.exit() and the like are failed attempts too
            _judge(outcome, error)
        outcome.run_seconds = time.perf_counter() - started
        outcome.finished_ns = outcome.started_ns + int(outcome.run_seconds * 1e9)
        # One reading per task, not two: it is a system call. The microsecond between two tasks counts as work.
        cpu = time.thread_time()
        outcome.cpu_seconds, self._cpu = cpu - self._cpu, cpu
        if self._forked:
            # The handler forked and its child came back here: it is no worker and must not go on as one.
            os._exit(0 if outcome.verdict is Verdict.OK else 1)
        self._current = None
        if context.cancelled.reason in ("revoked", "drain"):
            outcome.verdict = Verdict.DROPPED
            outcome.failure = Failure("Cancelled", context.cancelled.reason)
        return outcome


def _as_bytes(result: object) -> bytes:
    if isinstance(result, str):
        return result.encode()
    if result is None:
        return b""
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    message = f"the handler returned {type(result).__name__}; it must return str, bytes or None"
    raise Reject(message)


def _judge(outcome: Outcome, error: BaseException) -> None:
    """Set verdict and failure of an attempt that ended in an exception."""
    if isinstance(error, Reject):
        outcome.verdict = Verdict.REJECTED
    else:
        outcome.verdict = Verdict.FAILED
        if isinstance(error, Retry):
            outcome.retry_after = _seconds(error.after)
    message = _encodable(_text_of(error)[:MESSAGE_LIMIT])
    outcome.failure = Failure(_encodable(type(error).__name__), message, _encodable(_traceback_of(error)))


def _seconds(after: object) -> float | None:
    """The delay that was asked for; None, the usual one, where that is no number of seconds to wait for."""
    if isinstance(after, int | float) and after >= 0:
        return float(min(after, LONGEST_DELAY))
    return None


def _encodable(text: str) -> str:
    """The text with what no encoding has (lone surrogates, as in undecodable file names) written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def _text_of(error: BaseException) -> str:
    try:
        return str(error)
    except BaseException:  # noqa: BLE001 - the user's __str__ may be broken as well
        return "(its message cannot be shown)"


def _traceback_of(error: BaseException) -> str:
    own = error.__traceback__  # its first frame is ours
    try:
        lines = traceback.format_exception(type(error), error, own.tb_next if own else None)
    except BaseException:  # noqa: BLE001 - see _text_of
        lines = traceback.format_tb(own)
    return "".join(lines)[-TRACEBACK_LIMIT:]
