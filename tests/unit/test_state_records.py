"""The records of the state topic: how they are encoded and decoded, and which bytes are ignored."""

from __future__ import annotations

import dataclasses

import pytest

from worker.core.task_state import CANCELLING, CancelRequest, Origin, TaskState
from worker.state import records
from worker.state.records import Removed, decode, parse_origin

ORIGIN = Origin("requests", 3, 41)
STATE = TaskState(ORIGIN, "host-0", 2, 1_700_000_000_123_456_789, 1_700_000_001_000_000_001)
FULL = dataclasses.replace(
    STATE,
    attempt=2,
    key=b"k",
    sequence=-7,
    progress=0.0,
    message="m",
    checkpoint=b"\0\xff",
    state=CANCELLING,
    run="r",
    checkpoint_epoch=2,
)


@pytest.mark.parametrize("state", [STATE, FULL])
def test_a_state_is_decoded_as_it_was_encoded(state: TaskState) -> None:
    """Times are exact to the nanosecond, and a progress of 0 differs from no progress."""
    assert decode(records.state_key(ORIGIN), records.encode_state(state)) == state


def test_a_cancel_request_is_decoded_as_it_was_encoded() -> None:
    request = CancelRequest(ORIGIN, 5, "requested")
    assert decode(records.cancel_key(ORIGIN), records.encode_cancel(request)) == request


def test_the_keys_are_those_of_the_contract() -> None:
    """The commands write an origin the same way."""
    assert records.state_key(ORIGIN) == b"requests/3/41"
    assert records.cancel_key(ORIGIN) == b"cancel:requests/3/41"
    assert parse_origin(records.format_origin(ORIGIN)) == ORIGIN
    assert ORIGIN.place == ("requests", 3)


@pytest.mark.parametrize(
    "text", ["", "requests", "requests/3", "a/b/c", "requests/3/-1", "requests/3/4/5", "/3/4", "r/²/1"]
)
def test_a_text_that_is_not_an_origin_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be topic/partition/offset"):
        parse_origin(text)


def test_a_tombstone_removes_a_state_or_a_cancel_request() -> None:
    assert decode(b"requests/3/41", None) == Removed(ORIGIN, cancel=False)
    assert decode(b"cancel:requests/3/41", None) == Removed(ORIGIN, cancel=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (None, b"x"),
        (b"", b""),
        (b"\xff/1/2", None),
        (b"somebody/else", b"x"),
        (b"requests/3/41", b"\xff\xff\xff"),
        (b"requests/3/42", records.encode_state(STATE)),
        (b"cancel:requests/3/42", records.encode_cancel(CancelRequest(ORIGIN))),
        (b"requests/3/41", b""),
    ],
)
def test_bytes_that_are_not_a_valid_record_are_ignored(key: bytes | None, value: bytes | None) -> None:
    assert decode(key, value) is None


def test_the_partition_of_a_request_is_the_same_in_every_version() -> None:
    """Its state and its cancel request are both there. Requests are spread over all partitions."""
    assert [records.partition_of(Origin("requests", 0, offset), 7) for offset in range(8)] == [6, 2, 3, 5, 2, 2, 4, 0]
    assert {records.partition_of(Origin("requests", 0, offset), 7) for offset in range(200)} == set(range(7))


def test_the_largest_record_fits_into_a_topic_with_the_usual_size_limit() -> None:
    """It has the largest checkpoint. A message that is too long is cut, and a key that is too long is left out."""
    large = dataclasses.replace(
        FULL, checkpoint=bytes(records.CHECKPOINT_LIMIT), message="ä" * 9_999, key=bytes(10_001)
    )
    value = records.encode_state(large)
    assert len(value) < 1_048_588 - 20_000
    found = decode(b"requests/3/41", value)
    assert isinstance(found, TaskState)
    assert (len(found.message), found.key) == (1_000, b"")
