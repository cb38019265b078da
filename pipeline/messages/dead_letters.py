"""The headers of a dead letter, as columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from worker.codec import RUN_HEADER

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa

    from pipeline.exactly_once.chunks import Row

REPLAY_HEADER = "replay"
VALUE_DROPPED = "x-value-dropped"  # the value of the dead letter was dropped, because it was too large for the topic
# The headers that the worker adds to a dead letter.
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
_LONGEST = 19  # digits of the largest number


def dead_letter_row(headers: Iterable[dict[str, Any]] | None, sequence: int | None) -> tuple[Any, ...]:
    """Return the columns of ``RESPONSE`` for a dead letter. ``sequence`` is that of its request, if it has one.

    A column without a header is null. The outcome is null, because only the answer has one.
    """
    named = {header["key"]: header["value"] for header in headers or ()}  # the last header with a name counts
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
        None,
        _text(named.get(RUN_HEADER)),
    )


def replayed_headers(headers: Iterable[dict[str, Any]] | None, replays: int) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of a request to send again after ``replays`` replays: its old ones and the new number."""
    kept = [(h["key"], h["value"]) for h in headers or () if h["key"] not in _ADDED and h["key"] != REPLAY_HEADER]
    return [*kept, (REPLAY_HEADER, str(replays + 1).encode())]


def replayed_rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield the requests in the dead letters, byte for byte, with the number of this replay."""
    columns = {name: batch.column(name).to_pylist() for name in batch.schema.names}
    headers = map(replayed_headers, columns.pop("headers"), columns.pop("replays"))
    names = ("part", "number", "origin_topic", "key", "value")
    return zip(*(columns[name] for name in names), headers, strict=True)


def _text(content: bytes | None) -> str | None:
    return None if content is None else content.decode(errors="replace")


def _number(content: bytes | None, largest: int) -> int | None:
    """Return the number in a header, or None if it is invalid or out of bounds. Signs and blanks are invalid."""
    if content is None or len(content) > _LONGEST or not content.isdigit():
        return None
    number = int(content)
    return number if number <= largest else None
