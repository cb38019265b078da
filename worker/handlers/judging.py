"""What a handler returned or raised, as a result or a failure."""

from __future__ import annotations

import traceback
from typing import TYPE_CHECKING

from worker.core.model import Failure, Verdict
from worker.errors import Reject, Retry

if TYPE_CHECKING:
    from worker.core.model import Outcome

TRACEBACK_LIMIT = 16_000  # characters kept, from the end: the answer must fit into a record
MESSAGE_LIMIT = 2_000
LONGEST_DELAY = 86_400.0  # seconds a handler may ask to wait; also what becomes of "for ever"


def as_bytes(result: object) -> bytes:
    """The result of a handler; what is none raises Reject."""
    if isinstance(result, str):
        return result.encode()
    if result is None:
        return b""
    if isinstance(result, bytes | bytearray | memoryview):
        return bytes(result)
    message = f"the handler returned {type(result).__name__}; it must return str, bytes or None"
    raise Reject(message)


def judge(outcome: Outcome, error: BaseException) -> None:
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
