"""Records of the ack topic and of the dead-letter topic as rows of bronze. Runs on executors.

A message that cannot be decoded becomes a row with the reason. No content of a topic raises an error here.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from google.protobuf.message import DecodeError

from pipeline.messages import parsing
from pipeline.messages.dead_letters import dead_letter_row
from pipeline.messages.keys import LARGEST, PATTERN
from pipeline.messages.schemas import ANSWER, BRONZE, DEAD_LETTER, HEADERS, RESPONSE
from worker.codec import Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_NOTHING = pa.scalar(None)  # a column without values


def decode_packed(dead_letter_topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Decode as ``decode_batches`` does, from batches with the headers as JSON."""
    return decode_batches(dead_letter_topic, map(_unpacked, batches))


def decode_batches(dead_letter_topic: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield bronze rows from batches of ``RECORD`` of the ack topic and the dead-letter topic."""
    for batch in batches:
        named = _record_columns(batch)
        dead = pc.equal(batch.column("topic"), dead_letter_topic)
        named |= _answers(batch.column("value"), dead, named["request_sequence"])
        named["kind"] = pc.if_else(dead, DEAD_LETTER, ANSWER)
        if pc.any(dead).as_py():
            named |= _dead_letters(batch, dead, named)
        yield _assemble(BRONZE, named)


def _answers(values: pa.Array, dead: pa.Array, sequences: pa.Array) -> dict[str, pa.Array]:
    """Return the columns of ``RESPONSE``, ``decode_error`` and ``raw``, with nulls for dead letters."""
    # An empty value is an answer to request 0 and to no other request.
    first = pc.fill_null(pc.equal(sequences, 0), False)  # noqa: FBT003 - a value
    readable = pc.and_(pc.is_valid(values), pc.or_(pc.greater(pc.binary_length(values), 0), first))
    readable = pc.and_not(pc.fill_null(readable, False), dead)  # noqa: FBT003
    parsed, reasons = parsing.parse(pc.if_else(readable, values, b"").to_pylist())
    columns = parsing.columns(parsed)
    if not reasons and pc.all(readable).as_py():
        return {**columns, "decode_error": _NOTHING, "raw": _NOTHING}
    empty = pc.if_else(pc.is_valid(values), "empty value", "null value")
    refused = pa.array([reasons.get(number) for number in range(len(values))], pa.string())
    why = pc.if_else(dead, None, pc.if_else(readable, refused, empty))
    good = pc.and_(readable, pc.is_null(refused))
    columns = {name: pc.if_else(good, column, None) for name, column in columns.items()}
    return {**columns, "decode_error": why, "raw": pc.if_else(good, None, values)}


def _dead_letters(batch: pa.RecordBatch, dead: pa.Array, named: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return the columns of ``RESPONSE`` with those of the dead letters filled in."""
    some = batch.filter(dead)
    records = zip(some.column("headers").to_pylist(), some.column("value").to_pylist(), strict=True)
    rows = [dead_letter_row(headers, _sequence(value)) for headers, value in records]
    columns = zip(RESPONSE.names, zip(*rows, strict=True), strict=True)
    return {
        name: pc.replace_with_mask(named[name], dead, pa.array(column, named[name].type)) for name, column in columns
    }


def _sequence(value: bytes | None) -> int | None:
    """Return the sequence of the request in a dead letter, or None without one."""
    if value is None:
        return None
    try:
        return int(Request.FromString(value).sequence)
    except DecodeError:
        return None


# ---------------------------------------------------------------- Arrow


def _unpacked(batch: pa.RecordBatch) -> pa.RecordBatch:
    texts = batch.column("headers")
    if texts.null_count == len(batch):
        headers = pa.nulls(len(batch), HEADERS)
    else:
        headers = pa.array([None if text is None else _pairs(text) for text in texts.to_pylist()], HEADERS)
    return batch.set_column(batch.schema.get_field_index("headers"), "headers", headers)


def _pairs(text: str) -> list[dict[str, Any]]:
    pairs: list[dict[str, Any]] = json.loads(text)
    return [
        {"key": pair["key"], "value": base64.b64decode(pair["value"]) if "value" in pair else None} for pair in pairs
    ]


def _record_columns(batch: pa.RecordBatch) -> dict[str, pa.Array]:
    """Return the columns of the record itself and those derived from its key and time."""
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
    """Return bytes as text, with null where they are not UTF-8."""
    try:
        return column.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([_lenient(key) for key in column.to_pylist()], pa.string())


def _lenient(key: bytes | None) -> str | None:
    try:
        return None if key is None else key.decode()
    except UnicodeDecodeError:
        return None


def _assemble(schema: pa.Schema, columns: dict[str, Any]) -> pa.RecordBatch:
    count = len(columns["key"])
    return pa.RecordBatch.from_arrays([_array(columns[f.name], f, count) for f in schema], schema=schema)


def _array(values: Any, field: pa.Field, count: int) -> pa.Array:
    if values is _NOTHING:
        return pa.nulls(count, field.type)
    if isinstance(values, pa.Array | pa.ChunkedArray):
        return values if values.type == field.type else values.cast(field.type)
    return pa.array(values, field.type)
