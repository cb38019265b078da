"""What the owner of a partition records for the next owner, in the metadata of the committed offset.

The metadata is an ASCII text: ``kw1``, then fields of one character and a value. All numbers are hexadecimal, and
offsets are relative to the committed one. Readers skip unknown fields, so later versions can add fields.

========  ==========================================================================================================
``o``     the committed offset itself: metadata that another tool left beside another offset is ignored
``w``     tasks below this offset may have started, and the owner has not stopped cleanly
``s``     the token of that owner
``b``     at-most-once: tasks from this many offsets before the committed one may have started without an answer
``q``     tasks below this offset may have crashed a process, and how often one did
``a``     failed attempts, by offset
``e``     the types of the last errors of these attempts, by offset
``p``     of these offsets, the ones that wait for their next attempt: a crash was not their fault
``d``     run lengths of offsets that are unanswered, answered, unanswered … from the lowest unanswered one on
``x``     detached tasks: offset, attempt and holder, with ``-`` behind the holder if the task is vacated
``t``     a number that no other commit of this process has, in transactions
========  ==========================================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

PREFIX = "kw1"
LIMIT = 4_095  # characters; this client sends no more
NEARLY_FULL = LIMIT * 3 // 4  # above this size, a task starts only below an answered one
FULL = LIMIT - 512  # above this size, only the lowest task starts; the rest is for detached tasks
MOST_DETACHED = 16  # of one partition: even with the longest numbers, half of the remaining room
MOST_ERRORS = 8  # errors kept for one partition: the latest ones
LONGEST_ERROR = 32  # characters

_HEXADECIMAL = frozenset("0123456789abcdef")

Range = tuple[int, int]  # offsets from the first up to but not including the second


class MetadataError(ValueError):
    """The metadata was not written by a worker, or was written for another offset."""


class Suspects(NamedTuple):
    """Any task below ``below`` may have crashed a process; ``crashes`` processes have crashed."""

    below: int
    crashes: int


class Detached(NamedTuple):
    """A task that runs in a process which does not own its partition.

    ``attempt`` is the running attempt. ``holder`` identifies the process and the detached task within it. If
    ``vacated``, the owner of the partition has taken the right to answer away from the holder.
    """

    attempt: int
    holder: str
    vacated: bool = False


@dataclass(frozen=True, slots=True)
class CommitMetadata:
    """The decoded metadata. See the module for the fields.

    ``started_by`` is the token of the process that may have started tasks below ``started_below``. ``completed`` has
    the answered offsets above the lowest unanswered one, as ranges. ``detached`` and ``errors`` are keyed by offset.
    """

    started_below: int | None = None
    started_by: str = ""
    unanswered_from: int | None = None
    suspects: Suspects | None = None
    attempts: Mapping[int, int] = field(default_factory=dict)
    waiting: AbstractSet[int] = frozenset()
    completed: tuple[Range, ...] = ()
    transaction_id: str = ""
    detached: Mapping[int, Detached] = field(default_factory=dict)
    errors: Mapping[int, str] = field(default_factory=dict)


EMPTY = CommitMetadata()


def encode(metadata: CommitMetadata, offset: int) -> str:
    """Return the text to commit with ``offset``, empty without anything to record. It may exceed ``LIMIT``."""
    parts = [PREFIX, f"o{offset:x}"]
    if metadata.started_below is not None and metadata.started_below > offset:
        parts.append(f"w{metadata.started_below - offset:x}")
        parts += [f"s{metadata.started_by}"] if metadata.started_by else []
    if metadata.unanswered_from is not None and metadata.unanswered_from < offset:
        parts.append(f"b{offset - metadata.unanswered_from:x}")
    if metadata.suspects is not None and metadata.suspects.below > offset:
        parts.append(f"q{metadata.suspects.below - offset:x}.{metadata.suspects.crashes:x}")
    if metadata.attempts:
        parts.append(f"a{','.join(_attempts(metadata, offset))}")
    if metadata.errors:
        parts.append(f"e{','.join([f'{at - offset:x}.{name}' for at, name in sorted(metadata.errors.items())])}")
    if metadata.waiting:
        parts.append(f"p{','.join([f'{at - offset:x}' for at in sorted(metadata.waiting)])}")
    if metadata.completed:
        parts.append(f"d{','.join(_runs(metadata.completed, _lowest(metadata, offset)))}")
    if metadata.detached:
        parts.append(f"x{','.join(_detached(metadata, offset))}")
    if metadata.transaction_id:
        parts.append(f"t{metadata.transaction_id}")
    return " ".join(parts) if len(parts) > 2 else ""  # noqa: PLR2004 - prefix and offset alone say nothing


def characters_per_task(distance: int) -> int:
    """Return the most that one more task adds, up to this distance from the committed offset.

    A failed task adds most: its distance in ``a`` and in ``p``, its attempts in up to three digits, and three
    separators.
    """
    return 2 * len(f"{distance:x}") + 6


def transaction_id_of(text: str) -> str:
    """Return the number of the transaction that committed this text, empty if there was none."""
    return text.rpartition(" t")[2] if " t" in text else ""


def _lowest(metadata: CommitMetadata, offset: int) -> int:
    return offset if metadata.unanswered_from is None else min(offset, metadata.unanswered_from)


def _attempts(metadata: CommitMetadata, offset: int) -> Iterator[str]:
    for at, count in sorted(metadata.attempts.items()):
        yield f"{at - offset:x}.{count:x}"


def _detached(metadata: CommitMetadata, offset: int) -> Iterator[str]:
    for at, task in sorted(metadata.detached.items()):
        yield f"{at - offset:x}.{task.attempt:x}.{task.holder}{'-' if task.vacated else ''}"


def _runs(completed: tuple[Range, ...], lowest: int) -> Iterator[str]:
    at = lowest
    for first, stop in completed:
        yield f"{first - at:x}"
        yield f"{stop - first:x}"
        at = stop


def decode(text: str, offset: int) -> CommitMetadata:
    """Decode the metadata of a committed offset; an empty text gives ``EMPTY``. Raise MetadataError with the reason."""
    if not text:
        return EMPTY
    prefix, *parts = text.split(" ")
    if prefix != PREFIX or not text.isascii():
        raise MetadataError("another program wrote it")
    fields = {part[:1]: part[1:] for part in parts}
    try:
        metadata, written_for = _read(fields, offset), int(fields.get("o", "-1"), 16)
    except ValueError as error:
        raise MetadataError(f"it cannot be read: {error}") from None
    if written_for != offset:
        raise MetadataError("it was written for another offset")
    return metadata


def _read(fields: Mapping[str, str], offset: int) -> CommitMetadata:
    unanswered_from = offset - int(fields["b"], 16) if "b" in fields else None
    return CommitMetadata(
        started_below=offset + int(fields["w"], 16) if "w" in fields else None,
        started_by=fields.get("s", ""),
        unanswered_from=unanswered_from,
        suspects=_read_suspects(fields["q"], offset) if "q" in fields else None,
        attempts=dict(_read_attempts(fields.get("a", ""), offset)),
        waiting=frozenset([offset + int(at, 16) for at in fields["p"].split(",")]) if "p" in fields else frozenset(),
        completed=tuple(_read_runs(fields.get("d", ""), offset if unanswered_from is None else unanswered_from)),
        transaction_id=fields.get("t", ""),
        detached=dict(_read_detached(fields.get("x", ""), offset)),
        errors=dict(_read_errors(fields.get("e", ""), offset)),
    )


def _read_suspects(text: str, offset: int) -> Suspects:
    below, crashes = text.split(".")
    return Suspects(offset + int(below, 16), int(crashes, 16))


def _read_attempts(text: str, offset: int) -> Iterator[tuple[int, int]]:
    for entry in text.split(",") if text else ():
        at, count = entry.split(".")
        yield offset + int(at, 16), int(count, 16)


def _read_errors(text: str, offset: int) -> Iterator[tuple[int, str]]:
    for entry in text.split(",") if text else ():
        at, name = entry.split(".")
        yield offset + int(at, 16), name


def _read_detached(text: str, offset: int) -> Iterator[tuple[int, Detached]]:
    for entry in text.split(",") if text else ():
        at, attempt, holder = entry.split(".")
        task = Detached(int(attempt, 16), holder.removesuffix("-"), holder.endswith("-"))
        if not task.holder or not set(task.holder) <= _HEXADECIMAL:
            raise ValueError("a detached task has no holder")
        yield offset + int(at, 16), task


def _read_runs(text: str, lowest: int) -> Iterator[Range]:
    lengths = [int(length, 16) for length in text.split(",")] if text else []
    if len(lengths) % 2 or any(length < 0 for length in lengths):
        raise MetadataError("the run lengths do not add up")
    at = lowest
    for unanswered, answered in zip(lengths[::2], lengths[1::2], strict=True):
        first = at + unanswered
        at = first + answered
        yield first, at


def gaps(first: int, stop: int, ranges: Sequence[Range]) -> list[Range]:
    """Return the parts from ``first`` up to ``stop`` that lie in none of the ranges. The ranges are ascending."""
    missing, at = [], first
    for start, end in ranges:
        if at < min(start, stop):
            missing.append((at, min(start, stop)))
        at = max(at, end)
    return [*missing, (at, stop)] if at < stop else missing
