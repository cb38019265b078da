"""What the owners of a partition note for the next one, in the metadata of its committed offset.

A text of ASCII characters, ``kw1`` and then fields, each a letter and its value, all numbers hexadecimal and offsets
relative to the committed one. A reader leaves out the fields it does not know, so that later versions can add some.

========  ==========================================================================================================
``o``     the committed offset itself: notes that somebody else's tool has left beside another offset are of no use
``w``     tasks before this offset may have been started, and the owner has not left in good order
``b``     at-most-once: so far before the committed offset may tasks have been started that have no answer
``q``     tasks before this offset may be what a process died of, and how often one did
``a``     starts that came to no good end, by offset
``d``     lengths of the runs of offsets that are not answered, answered, not answered … from the lowest open one on
``t``     the transaction this was committed in
========  ==========================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

PREFIX = "kw1"
LIMIT = 4_095  # characters; this client sends no more
CROWDED = LIMIT * 3 // 4  # from here on nothing new is started out of order
TASK_CHARACTERS = 12  # what one more unanswered task between answered ones adds, at most, about

Range = tuple[int, int]  # offsets from the first up to, not including, the second


class NotesError(ValueError):
    """Metadata that is not ours, or not of this offset."""


class Doubt(NamedTuple):
    """Tasks before ``until`` may be what a process died of, ``times`` times."""

    until: int
    times: int


@dataclass(frozen=True, slots=True)
class Notes:
    """See the module. ``done`` are the answered offsets above the lowest open one, as ranges."""

    working: int | None = None
    started: int | None = None
    doubt: Doubt | None = None
    attempts: Mapping[int, int] = field(default_factory=dict)
    done: tuple[Range, ...] = ()
    serial: str = ""


NOTHING = Notes()


def encode(notes: Notes, offset: int) -> str:
    """The text to commit with ``offset``; empty if there is nothing to note. It may be too long: see ``LIMIT``."""
    parts = [PREFIX, f"o{offset:x}"]
    if notes.working is not None and notes.working > offset:
        parts.append(f"w{notes.working - offset:x}")
    if notes.started is not None and notes.started < offset:
        parts.append(f"b{offset - notes.started:x}")
    if notes.doubt is not None and notes.doubt.until > offset:
        parts.append(f"q{notes.doubt.until - offset:x}.{notes.doubt.times:x}")
    if notes.attempts:
        parts.append(f"a{','.join(_attempts(notes, offset))}")
    if notes.done:
        parts.append(f"d{','.join(_runs(notes.done, _lowest(notes, offset)))}")
    if notes.serial:
        parts.append(f"t{notes.serial}")
    return " ".join(parts) if len(parts) > 2 else ""  # noqa: PLR2004 - prefix and offset say nothing alone


def _lowest(notes: Notes, offset: int) -> int:
    return offset if notes.started is None else min(offset, notes.started)


def _attempts(notes: Notes, offset: int) -> Iterator[str]:
    for at, count in sorted(notes.attempts.items()):
        yield f"{at - offset:x}.{count:x}"


def _runs(done: tuple[Range, ...], lowest: int) -> Iterator[str]:
    at = lowest
    for first, stop in done:
        yield f"{first - at:x}"
        yield f"{stop - first:x}"
        at = stop


def decode(text: str, offset: int) -> Notes:
    """The notes beside a committed offset; none for an empty text. Raises NotesError with the reason."""
    if not text:
        return NOTHING
    prefix, *parts = text.split(" ")
    if prefix != PREFIX or not text.isascii():
        raise NotesError("they are not of this program")
    fields = {part[:1]: part[1:] for part in parts}
    try:
        notes, made_for = _read(fields, offset), int(fields.get("o", "-1"), 16)
    except ValueError as error:
        raise NotesError(f"they cannot be read: {error}") from None
    if made_for != offset:
        raise NotesError("they were made for another offset")
    return notes


def _read(fields: Mapping[str, str], offset: int) -> Notes:
    started = offset - int(fields["b"], 16) if "b" in fields else None
    return Notes(
        working=offset + int(fields["w"], 16) if "w" in fields else None,
        started=started,
        doubt=_read_doubt(fields["q"], offset) if "q" in fields else None,
        attempts=dict(_read_attempts(fields.get("a", ""), offset)),
        done=tuple(_read_runs(fields.get("d", ""), offset if started is None else started)),
        serial=fields.get("t", ""),
    )


def _read_doubt(text: str, offset: int) -> Doubt:
    until, times = text.split(".")
    return Doubt(offset + int(until, 16), int(times, 16))


def _read_attempts(text: str, offset: int) -> Iterator[tuple[int, int]]:
    for entry in text.split(",") if text else ():
        at, count = entry.split(".")
        yield offset + int(at, 16), int(count, 16)


def _read_runs(text: str, lowest: int) -> Iterator[Range]:
    lengths = [int(length, 16) for length in text.split(",")] if text else []
    if len(lengths) % 2 or any(length < 0 for length in lengths):
        raise NotesError("the runs do not add up")
    at = lowest
    for undone, done in zip(lengths[::2], lengths[1::2], strict=True):
        first = at + undone
        at = first + done
        yield first, at


def gaps(first: int, stop: int, ranges: Sequence[Range]) -> list[Range]:
    """What of the offsets from ``first`` up to ``stop`` lies in none of the ranges, which are in order."""
    missing, at = [], first
    for start, end in ranges:
        if start > at:
            missing.append((at, min(start, stop)))
        at = max(at, end)
    return [*missing, (at, stop)] if at < stop else missing
