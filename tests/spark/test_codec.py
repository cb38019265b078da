"""The codec of requests, keys and dead letters, compared with protobuf."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.testing import assertSchemaEqual

from pipeline.kafka.records import decode_records, request_records
from pipeline.lake.schemas import BRONZE, OUTGOING, RECORD
from pipeline.lake.tables import local_dataframe
from pipeline.messages import answers, requests
from pipeline.messages.keys import LARGEST, PATTERN
from pipeline.messages.requests import Run
from tests.spark.support.codec import NOON, decoded, encoded, int32, record, sequences, texts
from tests.spark.support.messages import NewerFields, OldRequest
from worker.codec import Request, Response

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ---------------------------------------------------------------- requests


@given(st.lists(st.tuples(sequences, texts, st.none() | texts), min_size=1))
def test_a_request_is_encoded_as_by_protobuf(rows: list[tuple[int, str, str | None]]) -> None:
    for (sequence, payload, deadline), out in zip(rows, encoded(*rows), strict=True):
        if sequence or payload:
            assert out["value"] == Request(sequence=sequence, payload=payload).SerializeToString()
        assert Request.FromString(out["value"]) == Request(sequence=sequence, payload=payload)
        assert out["key"] == f"j/{sequence:010d}".encode()
        wanted = {"job": b"j", "x-run": b"r1"} | ({} if deadline is None else {"x-deadline": deadline.encode()})
        assert {header["key"]: header["value"] for header in out["headers"]} == wanted


@given(int32, texts)
def test_negative_and_zero_sequences_are_encoded_as_by_protobuf(sequence: int, payload: str) -> None:
    batch = pa.RecordBatch.from_arrays([pa.array([sequence], pa.int32()), pa.array([payload])], ["sequence", "payload"])
    message = Request(sequence=sequence, payload=payload)
    (value,) = requests.values(batch).to_pylist()
    assert value == (message.SerializeToString() or b"\x08\x00")


def test_the_first_request_never_has_an_empty_value_that_the_worker_would_reject() -> None:
    (out,) = encoded((0, "", None))
    assert out["value"]
    assert Request.FromString(out["value"]) == Request()


def test_an_older_reader_understands_a_request() -> None:
    (out,) = encoded((7, "x" * 1_000_000, None))
    assert OldRequest.FromString(out["value"]).payload == "x" * 1_000_000


@given(int32, texts)
def test_the_sequence_of_a_dead_lettered_request_is_read(sequence: int, payload: str) -> None:
    newer = NewerFields(priority=-1, labels="hot").SerializeToString()
    value = OldRequest(sequence=sequence, payload=payload).SerializeToString() + newer
    assert answers._sequence(value) == sequence


# ---------------------------------------------------------------- keys, times and dead letters


@given(st.binary() | texts.map(str.encode) | st.from_regex(r"\A[a-z]{1,3}/[0-9]{9,11}\Z").map(str.encode))
@example(b"j/0000000001\n")
@example(b"j/2147483648")
@example("j/\u0661234567890".encode())
@example(b"\xff/0000000001")
def test_a_key_is_split_into_job_and_sequence(key: bytes) -> None:
    (row,) = decoded(record(b"\x08\x07", key))
    assert row["key"] == key
    try:
        text = key.decode()
    except UnicodeDecodeError:
        text = None
    assert row["key_text"] == text
    assert (row["job"], row["request_sequence"]) == ((text and split_key(text)) or (None, None))


def split_key(key: str) -> tuple[str, int] | None:
    """Return the job and the sequence that a key names, or None if the key does not have this form."""
    match = re.match(PATTERN.replace("$", r"\Z"), key)
    return (match["job"], int(match["sequence"])) if match and int(match["sequence"]) <= LARGEST else None


@given(st.from_regex(r"\A[A-Za-z0-9._-]{1,8}\Z"), sequences)
def test_an_encoded_key_is_split_into_the_same_job_and_sequence(job: str, sequence: int) -> None:
    (out,) = encoded((sequence, "x", None), job=job)
    assert split_key(out["key"].decode()) == (job, sequence)


def test_a_record_keeps_its_place_and_time() -> None:
    headers = [{"key": "k", "value": None}, {"key": "k", "value": b"\xff"}]
    (row,) = decoded(record(b"\x08\x07", None, headers=headers))
    assert (row["topic"], row["partition"], row["offset"], row["timestamp"]) == ("acks", 1, 5, NOON)
    assert (row["date"], row["headers"], row["kind"]) == (dt.date(2026, 1, 2), headers, "answer")


def dead_letter(value: bytes | None = b"\xff", **headers: bytes | None) -> dict[str, Any]:
    listed = [{"key": name.replace("_", "-"), "value": content} for name, content in headers.items()]
    (row,) = decoded(record(value, topic="dead_letters", headers=listed))
    return row


def test_a_dead_letter_is_decoded_with_its_origin_and_error() -> None:
    value = Request(sequence=9, payload="p").SerializeToString()
    row = dead_letter(
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
def test_invalid_headers_of_dead_letters_become_null(content: bytes | None, value: bytes | None) -> None:
    row = dead_letter(value, x_origin_partition=content, x_origin_offset=content, x_attempts=content)
    assert row["raw"] == value
    if content is None or not content.isdigit():
        assert [row[name] for name in ("origin_partition", "origin_offset", "attempt")] == [None] * 3


# ---------------------------------------------------------------- in Spark


def test_spark_and_the_codec_have_the_same_columns(spark: SparkSession) -> None:
    value = Response(sequence=1, attempt=2**32 - 1, outcome="OK").SerializeToString()
    value = bytes(value) + b"\x4a\x02\x08\x01"  # started_at: one second after the epoch
    headers = [("k", b"v"), ("n", None), ("n", b""), ('"\u00e9\n', bytes(range(256)))]
    rows = [(b"j/0000000001", value, "acks", 0, 1, NOON, headers), (None, None, "dead_letters", 0, 2, NOON, None)]
    found = decode_records(local_dataframe(spark, rows, RECORD), "dead_letters")
    assertSchemaEqual(found.schema, BRONZE)
    answer, dead = found.orderBy("offset").collect()
    assert (answer.attempt, answer.outcome) == (2**32 - 1, "OK")
    assert [(header.key, header.value) for header in answer.headers] == headers
    assert dead.headers is None
    assert answer.started_at.timestamp() == 1
    assert (dead.kind, dead.raw) == ("dead_letter", None)


def test_spark_encodes_a_manifest_as_records_of_requests(spark: SparkSession) -> None:
    manifest = spark.range(5).select(
        F.col("id").cast("int").alias("sequence"),
        F.col("id").cast("string").alias("payload"),
        F.lit(None).cast("string").alias("deadline"),
    )
    records = request_records(manifest, Run("j", "r1"))
    assertSchemaEqual(records.schema, OUTGOING)
    assert {bytes(row.key).decode() for row in records.collect()} == {f"j/{n:010d}" for n in range(5)}
    assert {Request.FromString(bytes(row.value)).payload for row in records.collect()} == set("01234")
