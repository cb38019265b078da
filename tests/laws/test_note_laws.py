"""Laws of what is noted beside a committed offset: it comes back as it was, or is refused with a reason."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.lane import Lane
from worker.core.model import Partition, Record
from worker.core.notes import LIMIT, NOTHING, Doubt, Notes, NotesError, Range, decode, encode, gaps

offsets = st.integers(min_value=0, max_value=2**63 - 1)
lengths = st.integers(min_value=1, max_value=10**6)


@st.composite
def ranges(draw: st.DrawFn, at: int) -> tuple[Range, ...]:
    """In order, with something between any two of them."""
    found = []
    for gap, length in draw(st.lists(st.tuples(lengths, lengths), max_size=8)):
        found.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(found)


@st.composite
def noted(draw: st.DrawFn) -> tuple[Notes, int]:
    """Notes as an owner may make them, and the offset they stand beside."""
    offset = draw(offsets)
    started = draw(st.none() | st.integers(min_value=1, max_value=10**6).map(lambda back: offset - back))
    lowest = offset if started is None else started
    attempts = draw(
        st.dictionaries(st.integers(min_value=0, max_value=10**9).map(lambda n: lowest + n), st.integers(1, 999))
    )
    return Notes(
        working=draw(st.none() | lengths.map(lambda n: offset + n)),
        started=started,
        doubt=draw(st.none() | st.builds(Doubt, lengths.map(lambda n: offset + n), st.integers(1, 99))),
        attempts=attempts,
        done=draw(ranges(lowest)),
        serial=draw(st.sampled_from(["", "5f3a", "0"])),
    ), offset


@given(case=noted())
def test_notes_come_back_as_they_were(case: tuple[Notes, int]) -> None:
    """In characters that any tool shows, and that fill one byte each."""
    notes, offset = case
    text = encode(notes, offset)
    assert decode(text, offset) == notes
    assert text.isascii()
    assert text.isprintable()


@given(offset=offsets)
def test_nothing_to_note_is_an_empty_text(offset: int) -> None:
    assert encode(NOTHING, offset) == ""
    assert decode("", offset) == NOTHING


@given(offset=offsets)
def test_what_is_behind_is_not_noted(offset: int) -> None:
    """What may have been started, or is doubtful, up to the offset and no further, is nothing any more."""
    past = Notes(working=offset, started=offset, doubt=Doubt(offset, 3))
    assert encode(past, offset) == ""


@given(case=noted(), more=st.sampled_from(["z9", "x", "yabc.1,2", "~~"]))
def test_a_later_version_may_add_fields(case: tuple[Notes, int], more: str) -> None:
    """They are left out by this one."""
    notes, offset = case
    text = encode(notes, offset)
    if text:
        assert decode(f"{text} {more}", offset) == notes


@given(case=noted(), other=offsets)
def test_notes_of_another_offset_are_refused(case: tuple[Notes, int], other: int) -> None:
    """As a tool leaves them that has set the offset alone."""
    notes, offset = case
    text = encode(notes, offset)
    if text and other != offset:
        with pytest.raises(NotesError):
            decode(text, other)


def only_notes_or_an_error(text: str, offset: int) -> None:
    with contextlib.suppress(NotesError):
        assert isinstance(decode(text, offset), Notes)


@given(text=st.text(), offset=offsets)
def test_any_text_is_notes_or_refused(text: str, offset: int) -> None:
    """Whoever wrote it."""
    only_notes_or_an_error(text, offset)


@given(fields=st.lists(st.text(alphabet="owbqadt0123456789abcdef.,-zx", max_size=9), max_size=6), offset=offsets)
def test_any_fields_are_notes_or_refused(fields: list[str], offset: int) -> None:
    only_notes_or_an_error(" ".join(["kw1", *fields]), offset)


@given(case=noted(), at=st.integers(min_value=0), character=st.characters(min_codepoint=32, max_codepoint=126))
def test_damaged_notes_are_notes_or_refused(case: tuple[Notes, int], at: int, character: str) -> None:
    """One character is another one, or all from there on is missing."""
    notes, offset = case
    text = encode(notes, offset)
    if text:
        at %= len(text)
        only_notes_or_an_error(text[:at] + character + text[at + 1 :], offset)
        only_notes_or_an_error(text[:at], offset)


@given(first=st.integers(0, 50), length=st.integers(0, 50), done=ranges(0))
def test_gaps_are_what_is_in_no_range(first: int, length: int, done: tuple[Range, ...]) -> None:
    """Offset by offset."""
    done = tuple((start % 60, start % 60 + (stop - start) % 20) for start, stop in done)
    done = tuple(sorted(done))
    found = [offset for start, stop in gaps(first, first + length, done) for offset in range(start, stop)]
    inside = {offset for start, stop in done for offset in range(start, stop)}
    assert found == [offset for offset in range(first, first + length) if offset not in inside]


@given(gap=st.integers(1, 5_000), every=st.integers(2, 5), failing=st.booleans())
def test_a_lane_starts_nothing_more_before_its_notes_are_full(gap: int, every: int, failing: bool) -> None:
    """Every so many tasks one stays open, with an attempt that failed, far apart: the worst there is."""
    lane = Lane(Partition("t", 0), 1, base=0, ordering="unordered")
    for number in range(3_000):
        lane.admit(Record(lane.partition, number * gap, None, b""))
    longest = 0
    while tasks := lane.take(50, 0.0, below=float("inf")):
        for task in tasks:
            if (task.record.offset // gap) % every:
                lane.done(task)
                lane.settle(task.record.offset)
            else:
                task.attempt += 1
                if failing:
                    lane.failed(task)
                lane.put_back(task, 1e9)
        lane.wish = lane.ledger.last + 1
        lane.note(len(encode(lane.notes(working=True), lane.position)))
        longest = max(longest, lane.noted)
    assert longest <= LIMIT
    assert len(lane.queue) > 0
