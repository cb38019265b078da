"""The codec of answers, compared with protobuf: the same bytes, the same values, never an exception."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.messages import parsing
from pipeline.messages.keys import LARGEST
from tests.spark.support.codec import decoded, int32, record, texts
from tests.spark.support.messages import NewerFields, OldResponse
from worker.codec import Outcome, Response

GROUPS = b"\x1b" * 99 + b"\x1c" * 99  # nested about as deeply as protobuf allows


@st.composite
def responses(draw: st.DrawFn) -> Response:
    message = Response(
        sequence=draw(int32),
        isprocessed=draw(st.booleans()),
        outcome=draw(st.sampled_from(Outcome.keys())),
        result=draw(st.binary()),
        attempt=draw(st.integers(0, 2**32 - 1)),
        worker=draw(texts),
        cpu_seconds=draw(st.floats(allow_nan=False)),
        run=draw(texts),
    )
    if draw(st.booleans()):
        message.error.type, message.error.message, message.error.traceback = draw(st.tuples(texts, texts, texts))
    if draw(st.booleans()):
        message.origin.topic, message.origin.partition = draw(texts), draw(int32)
        message.origin.offset = draw(st.integers(-(2**63), 2**63 - 1))
    for field in ("started_at", "finished_at", "requested_at"):
        if draw(st.booleans()):
            time = getattr(message, field)
            time.seconds, time.nanos = draw(st.integers(-(2**63), 2**63 - 1)), draw(int32)
    return message


@given(responses())
def test_an_answer_is_read_as_protobuf_reads_it(message: Response) -> None:
    (row,) = decoded(record(message.SerializeToString() or b"\x08\x00"))
    assert_same(row, message)


@given(responses(), st.integers(6, LARGEST) | st.integers(-(2**31), -1), st.binary())
def test_an_older_reader_reads_newer_answers(message: Response, outcome: int, tail: bytes) -> None:
    newer = NewerFields(outcome=outcome, priority=7, weight=0.5, labels=tail.hex(), short=9)
    (row,) = decoded(record(message.SerializeToString() + newer.SerializeToString()))
    message.outcome = outcome  # type: ignore[assignment]  # a number that this reader has no name for
    assert_same(row, message)
    assert row["outcome"] == f"OUTCOME_{outcome}"


@given(int32, st.booleans())
def test_answers_of_an_older_writer_are_read(sequence: int, processed: bool) -> None:
    value = OldResponse(sequence=sequence, isprocessed=processed).SerializeToString()
    (row,) = decoded(record(value, b"j/0000000000"))
    assert (row["sequence"], row["isprocessed"], row["outcome"]) == (sequence, processed, "UNSPECIFIED")
    assert row["decode_error"] is None
    assert [row[name] for name in ("error_type", "origin_topic", "started_at", "raw")] == [None] * 4


@given(st.binary())
@example(b"\x38\xff\xff\xff\xff\x0f")  # attempt = 2**32 - 1
@example(b"\x4a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\x7f\x10\x01")  # a time beyond all calendars
@example(b"\x42\x01\xff")  # worker: no UTF-8
@example(b"\x1b\x1c")  # an unknown group
def test_random_bytes_are_read_as_protobuf_reads_them_or_kept_with_the_reason(value: bytes) -> None:
    assert_as_protobuf(value)


@given(st.lists(st.none() | st.binary(max_size=12) | responses().map(Response.SerializeToString), max_size=5))
@example([b"\x08\x07", GROUPS, b"\x0b\x0c"])
@example([b"\x08\x07", b"\x0c"])  # the end of a group that never began
@example([b"\x08\x07", b"\x0a\x7f"])  # shorter than its length says: the next message must not fill it
@example([b"\x08" * 127, b"x" * 128, b"", b"\x0a\x00"])
def test_a_batch_is_read_like_its_separate_messages(values: list[bytes | None]) -> None:
    rows = decoded(*(record(value) for value in [*values, *reversed(values)])) if values else []
    for value, row in zip([*values, *reversed(values)], rows, strict=True):
        assert_as_protobuf(value, row)


def assert_as_protobuf(value: bytes | None, row: dict[str, Any] | None = None) -> None:
    if row is None:
        (row,) = decoded(record(value))
    try:
        message = Response.FromString(value) if value else None
    except Exception:  # noqa: BLE001 - any error of protobuf
        message = None
    if message is None:
        assert row["decode_error"]
        assert row["raw"] == value
        assert row["sequence"] is None
        assert row["outcome"] is None
    else:
        assert_same(row, message)


@given(responses(), st.data())
def test_damaged_answers_are_read_as_protobuf_reads_them_or_kept(message: Response, data: st.DataObject) -> None:
    value = bytearray(message.SerializeToString() + b"\x08\x07")
    value[data.draw(st.integers(0, len(value) - 1))] = data.draw(st.integers(0, 255))
    assert_as_protobuf(bytes(value))


def assert_same(row: dict[str, Any], message: Response) -> None:
    assert row["decode_error"] is None
    assert row["raw"] is None
    for field in ("sequence", "isprocessed", "result", "attempt", "worker"):
        assert row[field] == getattr(message, field), field
    assert row["cpu_seconds"] == pytest.approx(message.cpu_seconds, nan_ok=True)
    has_error, has_origin = message.HasField("error"), message.HasField("origin")
    for part in ("type", "message", "traceback"):
        assert row[f"error_{part}"] == (getattr(message.error, part) if has_error else None)
    for part in ("topic", "partition", "offset"):
        assert row[f"origin_{part}"] == (getattr(message.origin, part) if has_origin else None)
    for field in ("started_at", "finished_at", "requested_at"):
        assert row[field] == (time_of(getattr(message, field)) if message.HasField(field) else None), field


def time_of(timestamp: Any) -> dt.datetime | None:
    """Return a timestamp as protobuf converts it, or None if protobuf refuses it as out of bounds."""
    try:
        timestamp.ToJsonString()
        found: dt.datetime = timestamp.ToDatetime(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        return None
    return found.replace(microsecond=timestamp.nanos // 1000)


def test_a_null_value_is_kept_with_the_reason() -> None:
    (row,) = decoded(record(None, b"j/0000000000"))
    assert (row["decode_error"], row["raw"]) == ("null value", None)


def test_an_empty_value_is_an_answer_to_request_0_only() -> None:
    """An empty value means "sequence 0, not processed", which is an answer to request 0 and to no other."""
    first, other = decoded(record(b"", b"j/0000000000"), record(b"", b"j/0000000001"))
    assert (first["sequence"], first["isprocessed"], first["decode_error"]) == (0, False, None)
    assert (other["sequence"], other["decode_error"], other["raw"]) == (None, "empty value", b"")


def test_a_large_result_is_read() -> None:
    result = bytes(range(256)) * 4096
    (row,) = decoded(record(Response(sequence=1, result=result).SerializeToString()))
    assert row["result"] == result


def test_an_empty_submessage_is_not_null() -> None:
    message = Response(sequence=1)
    for part in (message.error, message.origin, message.started_at, message.finished_at):
        part.SetInParent()
    row, other = decoded(record(message.SerializeToString()), record(Response(sequence=1).SerializeToString()))
    assert_same(row, message)
    assert (row["origin_topic"], row["error_type"], row["started_at"].timestamp()) == ("", "", 0)
    assert_same(other, Response(sequence=1))


@pytest.mark.parametrize("length", [0, 1, 100, 130, 17_000, 3_000_000])
def test_valid_messages_are_parsed_in_one_step(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even if they are long. Parsing them one by one would give the same result, but slowly."""
    monkeypatch.setattr(parsing, "_one_by_one", None)
    messages = [Response(sequence=number, result=bytes(length)) for number in range(1, 4)]
    answers, reasons = parsing.parse([message.SerializeToString() for message in messages])
    assert (answers, reasons) == (messages, {})


def test_an_invalid_message_does_not_affect_its_neighbours() -> None:
    good = Response(sequence=3, isprocessed=True).SerializeToString()
    rows = decoded(record(good), record(b"\xff"), record(good))
    assert [row["sequence"] for row in rows] == [3, None, 3]
