"""What the headers of a dead letter say, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

REPLAY_HEADER = "replay"
VALUE_DROPPED = "x-value-dropped"  # the letter came without its value, which was too large for the topic
# What the worker adds to a dead letter.
_ADDED = {
    "x-origin-topic",
    "x-origin-partition",
    "x-origin-offset",
    "x-attempts",
    "x-error-type",
    "x-error-message",
    VALUE_DROPPED,
}
_INT32 = 2**31 - 1
_INT64 = 2**63 - 1
_LONGEST = 19  # digits of the greatest number


def letter_row(headers: Iterable[dict[str, Any]] | None, sequence: int | None) -> tuple[Any, ...]:
    """The columns of ``RESPONSE`` for a dead letter. ``sequence`` is that of the request in it, if it is one.

    What no header tells is null; the outcome is the answer's to tell.
    """
    named = {header["key"]: header["value"] for header in headers or ()}  # the last of a name counts
    return (
        sequence,
        None,
        None,
        None,
        _text(named.get("x-error-type")),
        _text(named.get("x-error-message")),
        None,
        _text(named.get("x-origin-topic")),
        _number(named.get("x-origin-partition"), _INT32),
        _number(named.get("x-origin-offset"), _INT64),
        _number(named.get("x-attempts"), _INT64),
        None,
        None,
        None,
        None,
    )


def replayed_headers(headers: Iterable[dict[str, Any]] | None, replays: int) -> list[tuple[str, str | bytes | None]]:
    """The headers of a request that is sent again after so many replays: its own, and the number of this one."""
    own = [(h["key"], h["value"]) for h in headers or () if h["key"] not in _ADDED and h["key"] != REPLAY_HEADER]
    return [*own, (REPLAY_HEADER, str(replays + 1).encode())]


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _number(content: bytes | None, largest: int) -> int | None:
    """The number in a header; None if it is none, or out of bounds. Digits alone: no sign, no blanks."""
    if content is None or len(content) > _LONGEST or not content.isdigit():
        return None
    number = int(content)
    return number if number <= largest else None
