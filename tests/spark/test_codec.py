"""The codec against protobuf itself: the same bytes, the same values, never an exception."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.testing import assertSchemaEqual

from pipeline import codec, parsing
from pipeline.keys import LARGEST, key_of, split_key
from pipeline.schemas import BRONZE, OUTGOING, RECORD
from pipeline.table_io import table_of
from tests.spark.support.messages import NewerFields, OldRequest, OldResponse
from worker.codec import Outcome, Request, Response

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOON = dt.datetime(2026, 1, 2, 12, 0, tzinfo=dt.UTC)
texts = st.text()  # without halves of surrogate pairs, which no UTF-8 has
sequences = st.integers(0, LARGEST)
int32 = st.integers(-(2**31), LARGEST)
GROUPS = b"\x1b" * 99 + b"\x1c" * 99  # within each other, about as deep as protobuf goes


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
    )
    if draw(st.booleans()):
        message.error.type, message.error.message, message.error.traceback = draw(st.tuples(texts, texts, texts))
    if draw(st.booleans()):
        message.origin.topic, message.origin.partition = draw(texts), draw(int32)
        message.origin.offset = draw(st.integers(-(2**63), 2**63 - 1))
    for field in ("started_at", "finished_at"):
        if draw(st.booleans()):
            time = getattr(message, field)
            time.seconds, time.nanos = draw(st.integers(-(2**63), 2**63 - 1)), draw(int32)
    return message


def record(value: bytes | None, key: bytes | None = b"j/0000000007", **other: Any) -> dict[str, Any]:
    row = {"key": key, "value": value, "topic": "acks", "partition": 1, "offset": 5, "timestamp": NOON, "headers": None}
    return {**row, **other}


def decoded(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Bronze rows of these records."""
    batch = pa.RecordBatch.from_pylist(list(rows), to_arrow_schema(RECORD))
    (out,) = codec.decode_batches("letters", [batch])
    assert out.schema == to_arrow_schema(BRONZE)
    found: list[dict[str, Any]] = out.to_pylist()
    return found


def encoded(*rows: tuple[int, str, str | None], job: str = "j") -> list[dict[str, Any]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    kinds = (pa.int32(), pa.string(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, ["sequence", "payload", "deadline"])
    (out,) = codec.encode_requests(job, [batch])
    assert out.schema == to_arrow_schema(OUTGOING)
    found: list[dict[str, Any]] = out.to_pylist()
    return found


# ---------------------------------------------------------------- requests


@given(st.lists(st.tuples(sequences, texts, st.none() | texts), min_size=1))
def test_a_request_has_the_bytes_of_protobuf(rows: list[tuple[int, str, str | None]]) -> None:
    for (sequence, payload, deadline), out in zip(rows, encoded(*rows), strict=True):
        if sequence or payload:
            assert out["value"] == Request(sequence=sequence, payload=payload).SerializeToString()
        assert Request.FromString(out["value"]) == Request(sequence=sequence, payload=payload)
        assert out["key"] == f"j/{sequence:010d}".encode()
        wanted = {"job": b"j"} if deadline is None else {"job": b"j", "x-deadline": deadline.encode()}
        assert {header["key"]: header["value"] for header in out["headers"]} == wanted


@given(int32, texts)
def test_negative_and_zero_sequences_have_the_bytes_of_protobuf(sequence: int, payload: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([sequence], pa.int32()), pa.array([payload])], ["sequence", "payload"])
    message = Request(sequence=sequence, payload=payload)
    (value,) = codec.values(batch).to_pylist()
    assert value == (message.SerializeToString() or b"\x08\x00")


def test_the_first_request_is_never_an_empty_value_which_the_worker_would_take_for_garbage() -> None:
    (out,) = encoded((0, "", None))
    assert out["value"]
    assert Request.FromString(out["value"]) == Request()


def test_an_older_reader_understands_a_request() -> None:
    (out,) = encoded((7, "x" * 1_000_000, None))
    assert OldRequest.FromString(out["value"]).payload == "x" * 1_000_000


@given(int32, texts)
def test_requests_are_read_back(sequence: int, payload: str) -> None:
    newer = NewerFields(priority=-1, labels="hot").SerializeToString()
    value = OldRequest(sequence=sequence, payload=payload).SerializeToString() + newer
    assert codec._request(value) == (sequence, payload, None)


# ---------------------------------------------------------------- answers


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
@example([b"\x08\x07", b"\x0a\x7f"])  # longer than it says: not to be made up of its neighbours
@example([b"\x08" * 127, b"x" * 128, b"", b"\x0a\x00"])
def test_a_batch_is_read_as_its_messages_are(values: list[bytes | None]) -> None:
    rows = decoded(*(record(value) for value in [*values, *reversed(values)])) if values else []
    for value, row in zip([*values, *reversed(values)], rows, strict=True):
        assert_as_protobuf(value, row)


def assert_as_protobuf(value: bytes | None, row: dict[str, Any] | None = None) -> None:
    if row is None:
        (row,) = decoded(record(value))
    try:
        message = Response.FromString(value) if value else None
    except Exception:  # noqa: BLE001 - whatever protobuf says to it
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
    for field in ("started_at", "finished_at"):
        assert row[field] == (time_of(getattr(message, field)) if message.HasField(field) else None), field


def time_of(timestamp: Any) -> dt.datetime | None:
    """By protobuf's own conversion, which refuses what is out of its bounds."""
    try:
        timestamp.ToJsonString()
        found: dt.datetime = timestamp.ToDatetime(tzinfo=dt.UTC)
    except (ValueError, OverflowError):
        return None
    return found.replace(microsecond=timestamp.nanos // 1000)


def test_a_null_value_is_kept_with_the_reason() -> None:
    (row,) = decoded(record(None, b"j/0000000000"))
    assert (row["decode_error"], row["raw"]) == ("null value", None)


def test_an_empty_value_is_an_answer_only_where_it_can_be_one() -> None:
    """No bytes at all say "sequence 0, not processed", which is an answer to request 0 and to no other."""
    first, other = decoded(record(b"", b"j/0000000000"), record(b"", b"j/0000000001"))
    assert (first["sequence"], first["isprocessed"], first["decode_error"]) == (0, False, None)
    assert (other["sequence"], other["decode_error"], other["raw"]) == (None, "empty value", b"")


def test_a_large_result_is_read() -> None:
    result = bytes(range(256)) * 4096
    (row,) = decoded(record(Response(sequence=1, result=result).SerializeToString()))
    assert row["result"] == result


def test_what_is_there_and_empty_is_not_null() -> None:
    message = Response(sequence=1)
    for part in (message.error, message.origin, message.started_at, message.finished_at):
        part.SetInParent()
    row, other = decoded(record(message.SerializeToString()), record(Response(sequence=1).SerializeToString()))
    assert_same(row, message)
    assert (row["origin_topic"], row["error_type"], row["started_at"].timestamp()) == ("", "", 0)
    assert_same(other, Response(sequence=1))


@pytest.mark.parametrize("length", [0, 1, 100, 130, 17_000, 3_000_000])
def test_good_messages_are_parsed_at_once(length: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their length. One by one they would be right too, and slow."""
    monkeypatch.setattr(parsing, "_one_by_one", None)
    messages = [Response(sequence=number, result=bytes(length)) for number in range(1, 4)]
    answers, reasons = parsing.parse([message.SerializeToString() for message in messages])
    assert (answers, reasons) == (messages, {})


def test_one_bad_message_leaves_its_neighbours_alone() -> None:
    good = Response(sequence=3, isprocessed=True).SerializeToString()
    rows = decoded(record(good), record(b"\xff"), record(good))
    assert [row["sequence"] for row in rows] == [3, None, 3]


# ---------------------------------------------------------------- keys, times and letters


@given(st.binary() | texts.map(str.encode) | st.from_regex(r"\A[a-z]{1,3}/[0-9]{9,11}\Z").map(str.encode))
@example(b"j/0000000001\n")
@example(b"j/2147483648")
@example("j/\u0661234567890".encode())
@example(b"\xff/0000000001")
def test_a_key_is_taken_apart_as_it_was_made(key: bytes) -> None:
    (row,) = decoded(record(b"\x08\x07", key))
    assert row["key"] == key
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = None
    assert row["key_text"] == text
    assert (row["job"], row["request_sequence"]) == ((text and split_key(text)) or (None, None))


@given(st.from_regex(r"\A[A-Za-z0-9._-]{1,8}\Z"), sequences)
def test_keys_are_ours_again(job: str, sequence: int) -> None:
    assert split_key(key_of(job, sequence)) == (job, sequence)


def test_a_record_keeps_its_place_and_time() -> None:
    headers = [{"key": "k", "value": None}, {"key": "k", "value": b"\xff"}]
    (row,) = decoded(record(b"\x08\x07", None, headers=headers))
    assert (row["topic"], row["partition"], row["offset"], row["timestamp"]) == ("acks", 1, 5, NOON)
    assert (row["date"], row["headers"], row["kind"]) == (dt.date(2026, 1, 2), headers, "answer")


def letter(value: bytes | None = b"\xff", **headers: bytes | None) -> dict[str, Any]:
    listed = [{"key": name.replace("_", "-"), "value": content} for name, content in headers.items()]
    (row,) = decoded(record(value, topic="letters", headers=listed))
    return row


def test_a_dead_letter_says_where_it_came_from_and_why() -> None:
    value = Request(sequence=9, payload="p").SerializeToString()
    row = letter(
        value,
        x_origin_topic=b"requests",
        x_origin_partition=b"3",
        x_origin_offset=b"77",
        x_attempts=b"2",
        x_error_type=b"Reject",
        x_error_message=b"too \xff long",
    )
    assert (row["kind"], row["raw"], row["sequence"], row["decode_error"]) == ("dead_letter", value, 9, None)
    assert (row["origin_topic"], row["origin_partition"], row["origin_offset"]) == ("requests", 3, 77)
    assert (row["attempt"], row["error_type"], row["error_message"]) == (2, "Reject", "too \ufffd long")
    assert (row["outcome"], row["isprocessed"]) == (None, None)


@given(st.none() | st.binary(), st.none() | st.binary())
@example(b"-1", None)
@example(b"99999999999999999999", None)
@example(b"9223372036854775808", None)
@example("\u00b2".encode(), None)
def test_strange_headers_of_dead_letters_are_null(content: bytes | None, value: bytes | None) -> None:
    row = letter(value, x_origin_partition=content, x_origin_offset=content, x_attempts=content)
    assert row["raw"] == value
    if content is None or not content.isdigit():
        assert [row[name] for name in ("origin_partition", "origin_offset", "attempt")] == [None] * 3


# ---------------------------------------------------------------- in Spark


def test_spark_agrees_on_the_columns(spark: SparkSession) -> None:
    value = Response(sequence=1, attempt=2**32 - 1, outcome="OK").SerializeToString()
    value = bytes(value) + b"\x4a\x02\x08\x01"  # started_at: one second after the epoch
    headers = [("k", b"v"), ("n", None), ("n", b""), ('"\u00e9\n', bytes(range(256)))]
    rows = [(b"j/0000000001", value, "acks", 0, 1, NOON, headers), (None, None, "letters", 0, 2, NOON, None)]
    found = codec.decode_records(table_of(spark, rows, RECORD), "letters")
    assertSchemaEqual(found.schema, BRONZE)
    answer, dead = found.orderBy("offset").collect()
    assert (answer.attempt, answer.outcome) == (2**32 - 1, "OK")
    assert [(header.key, header.value) for header in answer.headers] == headers
    assert dead.headers is None
    assert answer.started_at.timestamp() == 1
    assert (dead.kind, dead.raw) == ("dead_letter", None)


def test_spark_makes_the_records_of_requests(spark: SparkSession) -> None:
    manifest = spark.range(5).select(
        F.col("id").cast("int").alias("sequence"),
        F.col("id").cast("string").alias("payload"),
        F.lit(None).cast("string").alias("deadline"),
    )
    records = codec.request_records(manifest, "j")
    assertSchemaEqual(records.schema, OUTGOING)
    assert {bytes(row.key).decode() for row in records.collect()} == {f"j/{n:010d}" for n in range(5)}
    assert {Request.FromString(bytes(row.value)).payload for row in records.collect()} == set("01234")
