"""Turns the return value or the exception of a handler into a result or a failure."""

from __future__ import annotations

import json
import traceback
from typing import TYPE_CHECKING, Any

from worker.core.model import Failure, Verdict
from worker.errors import Reject, Retry

if TYPE_CHECKING:
    from worker.core.model import Outcome

TRACEBACK_LIMIT = 16_000  # the last characters are kept, because the answer must fit into a record
MESSAGE_LIMIT = 2_000
LONGEST_DELAY = 86_400.0  # the longest delay in seconds that a handler may request; also used for infinity


def as_bytes(result: object) -> bytes:
    """Return the bytes of a handler's result; JSON for a dict or a list. Raise Reject if there are none."""
    if isinstance(result, str):
        try:
            return result.encode()
        except UnicodeEncodeError as error:
            raise Reject(f"the handler returned str that UTF-8 cannot hold: {error}") from error
    if result is None:
        return b""
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    if isinstance(result, dict | list):
        return _as_json(result)
    message = f"the handler returned {type(result).__name__}; it must return str, bytes, dict, list or None"
    raise Reject(message)


def _as_json(result: dict[Any, Any] | list[Any]) -> bytes:
    try:
        return json.dumps(result, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise Reject(f"the handler returned {type(result).__name__}, which JSON cannot hold: {error}") from error


def judge(outcome: Outcome, error: BaseException) -> None:
    """Set verdict and failure of an attempt that ended in an exception."""
    if isinstance(error, Reject):
        outcome.verdict = Verdict.REJECTED
    else:
        outcome.verdict = Verdict.FAILED
        if isinstance(error, Retry):
            outcome.retry_after = _seconds_of(error)
    outcome.failure = Failure(encodable(type(error).__name__), message_of(error), encodable(_traceback_of(error)))


def _seconds_of(error: Retry) -> float | None:
    """Return the requested delay in seconds, or None (the usual back-off) if there is no valid number.

    The user's subclass may not have called ``__init__``.
    """
    after = getattr(error, "after", None)
    if isinstance(after, int | float) and after >= 0:
        return float(min(after, LONGEST_DELAY))
    return None


def encodable(text: str) -> str:
    """Return the text with lone surrogates, as in undecodable file names, written as escapes."""
    return text.encode("utf-8", "backslashreplace").decode()


def message_of(error: object) -> str:
    """Return the text of an exception or a reason, at most ``MESSAGE_LIMIT`` characters. Never raise."""
    try:
        return encodable(str(error)[:MESSAGE_LIMIT])[:MESSAGE_LIMIT]
    except BaseException:  # noqa: BLE001 - the user's __str__ may be broken as well
        return "(its message cannot be shown)"


def _traceback_of(error: BaseException) -> str:
    trace = error.__traceback__  # its first frame is ours
    try:
        lines = traceback.format_exception(type(error), error, trace.tb_next if trace else None)
    except BaseException:  # noqa: BLE001 - see message_of
        lines = traceback.format_tb(trace)
    return "".join(lines)[-TRACEBACK_LIMIT:]
