"""Laws of commit metadata: it is read as it was written, or refused with a reason."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.commit_metadata import (
    EMPTY,
    LIMIT,
    CommitMetadata,
    Detached,
    MetadataError,
    Range,
    Suspects,
    decode,
    encode,
    gaps,
    transaction_id_of,
)
from worker.core.model import Partition, Record
from worker.core.owned_partition import OwnedPartition

offsets = st.integers(min_value=0, max_value=2**63 - 1)
lengths = st.integers(min_value=1, max_value=10**6)


holders = st.text(alphabet="0123456789abcdef", min_size=9, max_size=12)
names = st.text(alphabet="AZaz09_", min_size=1, max_size=32)
detached = st.builds(Detached, st.integers(1, 999), holders, st.booleans())


@st.composite
def ranges(draw: st.DrawFn, at: int) -> tuple[Range, ...]:
    """Draw ascending ranges with a gap between any two of them."""
    found = []
    for gap, length in draw(st.lists(st.tuples(lengths, lengths), max_size=8)):
        found.append((at + gap, at + gap + length))
        at += gap + length
    return tuple(found)


@st.composite
def cases(draw: st.DrawFn) -> tuple[CommitMetadata, int]:
    """Draw commit metadata that an owner may write, and the offset that is committed with it."""
    offset = draw(offsets)
    unanswered_from = draw(st.none() | st.integers(min_value=1, max_value=10**6).map(lambda back: offset - back))
    lowest = offset if unanswered_from is None else unanswered_from
    places = st.integers(min_value=0, max_value=10**9).map(lambda distance: lowest + distance)
    attempts = draw(st.dictionaries(places, st.integers(1, 999)))
    return CommitMetadata(
        started_below=draw(st.none() | lengths.map(lambda distance: offset + distance)),
        unanswered_from=unanswered_from,
        suspects=draw(st.none() | st.builds(Suspects, lengths.map(lambda n: offset + n), st.integers(1, 99))),
        attempts=attempts,
        waiting=draw(st.frozensets(st.sampled_from(sorted(attempts)) if attempts else st.nothing())),
        completed=draw(ranges(lowest)),
        errors=draw(st.dictionaries(places, names, max_size=8)),
        transaction_id=draw(st.sampled_from(["", "5f3a", "0"])),
        detached=draw(st.dictionaries(places, detached, max_size=4)),
    ), offset


@given(case=cases())
def test_metadata_is_read_as_it_was_written(case: tuple[CommitMetadata, int]) -> None:
    """The text has only printable ASCII characters, which take one byte each."""
    metadata, offset = case
    text = encode(metadata, offset)
    assert decode(text, offset) == metadata
    assert text.isascii()
    assert text.isprintable()


@given(offset=offsets)
def test_empty_metadata_is_an_empty_text(offset: int) -> None:
    assert encode(EMPTY, offset) == ""
    assert decode("", offset) == EMPTY


@given(offset=offsets)
def test_limits_at_the_committed_offset_are_not_recorded(offset: int) -> None:
    """Requests below the committed offset are settled. So a start limit or suspects up to it mean nothing."""
    past = CommitMetadata(started_below=offset, unanswered_from=offset, suspects=Suspects(offset, 3))
    assert encode(past, offset) == ""


@given(case=cases())
def test_the_transaction_id_can_be_read_from_the_text(case: tuple[CommitMetadata, int]) -> None:
    metadata, offset = case
    assert transaction_id_of(encode(metadata, offset)) == metadata.transaction_id


@given(case=cases(), more=st.sampled_from(["z9", "v", "yabc.1,2", "~~"]))
def test_a_later_version_may_add_fields(case: tuple[CommitMetadata, int], more: str) -> None:
    """This version skips unknown fields."""
    metadata, offset = case
    text = encode(metadata, offset)
    if text:
        assert decode(f"{text} {more}", offset) == metadata


@given(case=cases(), other=offsets)
def test_metadata_of_another_offset_is_refused(case: tuple[CommitMetadata, int], other: int) -> None:
    """A tool that sets only the offset leaves such metadata."""
    metadata, offset = case
    text = encode(metadata, offset)
    if text and other != offset:
        with pytest.raises(MetadataError):
            decode(text, other)


def is_metadata_or_refused(text: str, offset: int) -> None:
    with contextlib.suppress(MetadataError):
        assert isinstance(decode(text, offset), CommitMetadata)


@given(text=st.text(), offset=offsets)
def test_any_text_is_metadata_or_refused(text: str, offset: int) -> None:
    """Other programs may have written it."""
    is_metadata_or_refused(text, offset)


@given(fields=st.lists(st.text(alphabet="owbqapdtx0123456789abcdef.,-z", max_size=9), max_size=6), offset=offsets)
def test_any_fields_are_metadata_or_refused(fields: list[str], offset: int) -> None:
    is_metadata_or_refused(" ".join(["kw1", *fields]), offset)


@given(case=cases(), at=st.integers(min_value=0), character=st.characters(min_codepoint=32, max_codepoint=126))
def test_damaged_metadata_is_metadata_or_refused(case: tuple[CommitMetadata, int], at: int, character: str) -> None:
    """One character is replaced, or the text is cut there."""
    metadata, offset = case
    text = encode(metadata, offset)
    if text:
        at %= len(text)
        is_metadata_or_refused(text[:at] + character + text[at + 1 :], offset)
        is_metadata_or_refused(text[:at], offset)


@given(first=st.integers(0, 50), length=st.integers(0, 50), completed=ranges(0))
def test_gaps_are_the_offsets_in_no_range(first: int, length: int, completed: tuple[Range, ...]) -> None:
    """The test compares them offset by offset."""
    completed = tuple((start % 60, start % 60 + (stop - start) % 20) for start, stop in completed)
    completed = tuple(sorted(completed))
    found = [offset for start, stop in gaps(first, first + length, completed) for offset in range(start, stop)]
    inside = {offset for start, stop in completed for offset in range(start, stop)}
    assert found == [offset for offset in range(first, first + length) if offset not in inside]


@given(
    gap=st.integers(1, 5_000),
    every=st.integers(2, 5),
    failing=st.booleans(),
    chunk=st.sampled_from([50, 3_000]),
)
def test_tasks_stop_starting_before_the_metadata_exceeds_its_limit(
    gap: int, every: int, failing: bool, chunk: int
) -> None:
    """In the worst case, unanswered tasks lie far apart, and each has failed and waits for its next attempt."""
    owned = OwnedPartition(Partition("t", 0), start_offset=0, ordering="unordered")
    for number in range(3_000):
        owned.admit(Record(owned.partition, number * gap, None, b""))
    longest = 0
    while tasks := owned.take(chunk, 0.0, below=float("inf")):
        for task in tasks:
            if (task.record.offset // gap) % every:
                owned.finish(task)
                owned.settle(task.record.offset)
            else:
                task.attempt += 1
                if failing:
                    owned.fail(task)
                owned.requeue(task, 1e9)
        owned.starts.requested = owned.offsets.last + 1
        text = encode(owned.metadata(clean=False), owned.position)
        owned.recorded(len(text))
        longest = max(longest, len(text))
    assert longest <= LIMIT
    assert len(owned.queue) > 0
