"""Columns to protobuf and back. With ``parsing``, the pipeline's only user of the messages.

The functions that work on Arrow batches run in Spark's Python workers. A message that cannot be decoded becomes a row
that says so; nothing here raises because of what stands in a topic.
"""

from __future__ import annotations

import base64
import functools
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline import parsing
from pipeline.keys import LARGEST, PATTERN
from pipeline.letters import letter_row
from pipeline.schemas import ANSWER, BRONZE, DEAD_LETTER, OUTGOING, RECORD, REQUEST, RESPONSE
from worker.codec import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame

JOB_HEADER = "job"
DEADLINE_HEADER = "x-deadline"

# Sequence 0 with an empty payload is no bytes at all, and the worker takes an empty value for garbage. This is the
# same message to every reader of protobuf.
_EXPLICIT_ZERO = b"\x08\x00"
_HEADERS = to_arrow_schema(OUTGOING).field("headers").type
_NOTHING = pa.scalar(None)  # a column without a value


# ---------------------------------------------------------------- requests out


def request_records(manifest: DataFrame, job: str) -> DataFrame:
    """The records of planned requests, for the Kafka sink. Columns as ``OUTGOING``."""
    columns = manifest.select("sequence", "payload", "deadline")
    return columns.mapInArrow(functools.partial(encode_requests, job), OUTGOING)


def encode_requests(job: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Batches with ``sequence``, ``payload`` and ``deadline`` to batches of ``OUTGOING``."""
    schema = to_arrow_schema(OUTGOING)
    for batch in batches:
        columns = [keys(job, batch), values(batch), _headers(job, batch)]
        yield pa.RecordBatch.from_arrays([c.cast(f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


def keys(job: str, batch: pa.RecordBatch) -> pa.Array:
    """The keys of a batch's requests."""
    digits = pc.utf8_lpad(batch.column("sequence").cast(pa.string()), 10, "0")
    return pc.binary_join_element_wise(f"{job}/", digits, "").cast(pa.binary())


def values(batch: pa.RecordBatch) -> pa.Array:
    """The ``Request`` of each row."""
    message, encoded = Request(), []
    for sequence, payload in zip(
        batch.column("sequence").to_pylist(), batch.column("payload").to_pylist(), strict=True
    ):
        message.sequence = sequence
        message.payload = payload
        encoded.append(message.SerializeToString() or _EXPLICIT_ZERO)
    return pa.array(encoded, pa.binary())


def headers_of(job: str, deadline: str | None) -> list[tuple[str, str | bytes | None]]:
    """The headers of one request."""
    headers: list[tuple[str, str | bytes | None]] = [(JOB_HEADER, job.encode())]
    return headers if deadline is None else [*headers, (DEADLINE_HEADER, deadline.encode())]


def _headers(job: str, batch: pa.RecordBatch) -> pa.Array:
    deadlines, count = batch.column("deadline"), batch.num_rows
    if deadlines.null_count < count:
        rows = [headers_of(job, deadline) for deadline in deadlines.to_pylist()]
        return pa.array(rows, pa.map_(pa.string(), pa.binary())).cast(_HEADERS)
    # The same header for all: nothing to be looked at row by row.
    pairs = [pa.repeat(pa.scalar(JOB_HEADER), count), pa.repeat(pa.scalar(job.encode()), count)]
    offsets = pa.array(np.arange(count + 1, dtype=np.int32))
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(pairs, ["key", "value"])).cast(_HEADERS)


# ---------------------------------------------------------------- requests in


def decode_requests(records: DataFrame) -> DataFrame:
    """What stands in a request topic: ``RECORD`` without its value, and ``sequence``, ``payload``, ``decode_error``."""
    return _packed(records).mapInArrow(_decode_requests, REQUEST)


def _decode_requests(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    schema = to_arrow_schema(REQUEST)
    for batch in map(_unpacked, batches):
        rows = [_request(value) for value in batch.column("value").to_pylist()]
        decoded = dict(zip(("sequence", "payload", "decode_error"), _columns(rows, 3), strict=True))
        yield _assemble(schema, {**_record_columns(batch), **decoded})


def _request(value: bytes | None) -> tuple[int | None, str | None, str | None]:
    if value is None:
        return None, None, "null value"
    try:
        message = Request.FromString(value)
    except DecodeError as error:
        return None, None, str(error) or type(error).__name__
    return message.sequence, message.payload, None


# ---------------------------------------------------------------- answers and dead letters in


def decode_records(records: DataFrame, dead_letter_topic: str) -> DataFrame:
    """Bronze rows from records of the ack topic and of the dead-letter topic. Columns as ``BRONZE``."""
    return _packed(records).mapInArrow(functools.partial(_decode_packed, dead_letter_topic), BRONZE)


def _decode_packed(dead_letter_topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    return decode_batches(dead_letter_topic, map(_unpacked, batches))


def decode_batches(dead_letter_topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same for batches of ``RECORD``."""
    schema = to_arrow_schema(BRONZE)
    for batch in batches:
        named = _record_columns(batch)
        letters = pc.equal(batch.column("topic"), dead_letter_topic)
        named |= _answers(batch.column("value"), letters, named["request_sequence"])
        named["kind"] = pc.if_else(letters, DEAD_LETTER, ANSWER)
        if pc.any(letters).as_py():
            named |= _letters(batch, letters, named)
        yield _assemble(schema, named)


def _answers(values: pa.Array, letters: pa.Array, sequences: pa.Array) -> dict[str, pa.Array]:
    """The columns of ``RESPONSE``, ``decode_error`` and ``raw``: null where a record is a letter."""
    # No bytes at all are an answer to the request 0, and to no other.
    first = pc.fill_null(pc.equal(sequences, 0), False)  # noqa: FBT003 - a value
    readable = pc.and_(pc.is_valid(values), pc.or_(pc.greater(pc.binary_length(values), 0), first))
    readable = pc.and_not(pc.fill_null(readable, False), letters)  # noqa: FBT003
    parsed, reasons = parsing.parse(pc.if_else(readable, values, b"").to_pylist())
    columns = parsing.columns(parsed)
    if not reasons and pc.all(readable).as_py():
        return {**columns, "decode_error": _NOTHING, "raw": _NOTHING}
    empty = pc.if_else(pc.is_valid(values), "empty value", "null value")
    refused = pa.array([reasons.get(number) for number in range(len(values))], pa.string())
    why = pc.if_else(letters, None, pc.if_else(readable, refused, empty))
    good = pc.and_(readable, pc.is_null(refused))
    columns = {name: pc.if_else(good, column, None) for name, column in columns.items()}
    return {**columns, "decode_error": why, "raw": pc.if_else(good, None, values)}


def _letters(batch: pa.RecordBatch, letters: pa.Array, named: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns of ``RESPONSE`` with those of the dead letters put in."""
    some = batch.filter(letters)
    records = zip(some.column("headers").to_pylist(), some.column("value").to_pylist(), strict=True)
    rows = [letter_row(headers, _request(value)[0]) for headers, value in records]
    told = zip(RESPONSE.fieldNames(), zip(*rows, strict=True), strict=True)
    return {
        name: pc.replace_with_mask(named[name], letters, pa.array(column, named[name].type)) for name, column in told
    }


# ---------------------------------------------------------------- Arrow


def _packed(records: DataFrame) -> DataFrame:
    """``RECORD`` with the headers as a text. Spark adds up the bytes of a batch after each row, and does that by far
    slowest for arrays of structs, even if all of them are null: as most answers' headers are.
    """
    pairs = F.transform("headers", lambda h: F.struct(h["key"].alias("key"), F.base64(h["value"]).alias("value")))
    return records.select(*RECORD.fieldNames()).withColumn("headers", F.to_json(pairs))


def _unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    texts = batch.column("headers")
    if texts.null_count == len(batch):
        headers = pa.nulls(len(batch), _HEADERS)
    else:
        headers = pa.array([None if text is None else _pairs(text) for text in texts.to_pylist()], _HEADERS)
    return batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)


def _pairs(text: str) -> list[dict[str, Any]]:
    pairs: list[dict[str, Any]] = json.loads(text)
    return [
        {"key": pair["key"], "value": base64.b64decode(pair["value"]) if "value" in pair else None} for pair in pairs
    ]


def _record_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """The columns that come from the record itself, and those that its key and its time give."""
    columns = {name: batch.column(name) for name in ("key", "topic", "partition", "offset", "headers")}
    time = batch.column("timestamp").cast(pa.timestamp("us", tz="UTC"))
    text = _text(batch.column("key"))
    named = pc.extract_regex(text, PATTERN)
    number = pc.struct_field(named, "sequence").cast(pa.int64())
    ours = pc.and_kleene(pc.is_valid(named), pc.less_equal(number, LARGEST))
    return columns | {
        "timestamp": time,
        "date": time.cast(pa.date32()),
        "key_text": text,
        "job": pc.if_else(ours, pc.struct_field(named, "job"), None),
        "request_sequence": pc.if_else(ours, number, None).cast(pa.int32()),
    }


def _text(column: pa.Array) -> pa.Array:
    """Bytes as text, null where they are no UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_lenient(key) for key in column.to_pylist()], pa.string())


def _lenient(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _columns(rows: list[tuple[Any, ...]], width: int) -> list[Any]:
    return list(zip(*rows, strict=True)) if rows else [()] * width


def _assemble(schema: pa.Schema, columns: dict[str, Any]) -> pa.RecordBatch:
    count = len(columns["key"])
    return pa.RecordBatch.from_arrays([_array(columns[f.name], f, count) for f in schema], schema=schema)


def _array(values: Any, field: pa.Field, count: int) -> pa.Array:
    if values is _NOTHING:
        return pa.nulls(count, field.type)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == field.type else values.cast(field.type)
    return pa.array(values, field.type)
