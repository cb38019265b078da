"""Encoding requests and decoding answers, compared with ``mapInArrow`` and protobuf (upb) alone.

The lower bounds build and parse the same messages with all fields. The pipeline also handles keys, headers and dates,
returns null for absent fields and invalid times, and returns rows for messages that cannot be decoded. There are two
bounds for decoding. The bare one gets only values and returns the 17 fields. The other gets the same input as the
pipeline and returns bronze's 26 columns: those of the record unchanged, and null for those that the pipeline derives.
"""

from __future__ import annotations

import functools
import tempfile
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema

from benchmarks.spark.measure import consume, in_turns, rates, ratio, session
from pipeline.kafka.records import decode_records, request_records
from pipeline.lake.schemas import BRONZE, RECORD
from pipeline.messages.requests import Run
from worker.codec import Request, Response

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pyspark.sql import DataFrame, SparkSession

    from benchmarks.figures import Figure

NAME = "spark-codec"
_FIELDS = pa.schema(
    [
        *(("sequence", pa.int32()), ("isprocessed", pa.bool_()), ("outcome", pa.int32()), ("result", pa.binary())),
        *((name, pa.string()) for name in ("error", "message", "traceback", "topic")),
        *(("partition", pa.int32()), ("offset", pa.int64()), ("attempt", pa.int64()), ("worker", pa.string())),
        *(("started", pa.int64()), ("started_nanos", pa.int32())),
        *(("finished", pa.int64()), ("finished_nanos", pa.int32()), ("cpu_seconds", pa.float64())),
    ]
)

# Their columns in bronze. Nanoseconds of a time have no column.
_BRONZE_FIELDS = [
    *("sequence", "isprocessed", "outcome", "result", "error_type", "error_message", "error_traceback"),
    *("origin_topic", "origin_partition", "origin_offset", "attempt", "worker"),
    *("started_at", "_", "finished_at", "_", "cpu_seconds"),
]


def run(rows: int = 1_000_000, repetitions: int = 6) -> list[Figure]:
    """Return rows per second of encoding and decoding, and the ratios to the lower bounds."""
    spark = session()
    figures: list[Figure] = []
    with tempfile.TemporaryDirectory(prefix="bench-codec-") as folder:
        for quantity, tables in (
            ("encode", _encoding(spark, folder, rows)),
            ("decode", _decoding(spark, folder, rows)),
        ):
            seconds = in_turns({name: functools.partial(consume, table) for name, table in tables.items()}, repetitions)
            figures += rates(NAME, quantity, rows, seconds)
            ours = seconds.pop("pipeline")
            # The bare bound is the goal. The other shows how much of the rest comes from the record's columns.
            figures += [
                ratio(NAME, f"{quantity}, of the {name}", ours, floor, quantity if name == "floor" else "")
                for name, floor in seconds.items()
            ]
    return figures


def _encoding(spark: SparkSession, folder: str, rows: int) -> dict[str, DataFrame]:
    spark.range(rows).select(
        F.col("id").cast("int").alias("sequence"),
        F.concat(F.lit("configuration "), "id").alias("payload"),
        F.lit(None).cast("string").alias("deadline"),
    ).write.parquet(f"{folder}/manifest")
    manifest = spark.read.parquet(f"{folder}/manifest")
    floor = manifest.select("sequence", "payload").mapInArrow(_encode, "value binary")
    return {"pipeline": request_records(manifest, Run("bench", "r0")), "floor": floor}


def _encode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        columns = zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)
        values = [Request(sequence=sequence, payload=payload).SerializeToString() for sequence, payload in columns]
        yield pa.RecordBatch.from_arrays([pa.array(values, pa.binary())], ["value"])


def _decoding(spark: SparkSession, folder: str, rows: int) -> dict[str, DataFrame]:
    keys = spark.range(rows).select(F.col("id"), F.format_string("bench/%010d", "id").cast("binary").alias("key"))
    answered = keys.mapInArrow(_answer, RECORD)
    answered.write.parquet(f"{folder}/answers")
    records = spark.read.parquet(f"{folder}/answers")
    return {
        "pipeline": decode_records(records, "dead-letters"),
        "floor": records.select("value").mapInArrow(_decode, from_arrow_schema(_FIELDS)),
        "floor to bronze": records.select(*RECORD.fieldNames()).mapInArrow(_decode_to_bronze, BRONZE),
    }


def _answer(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield records as the worker writes them."""
    for batch in batches:
        ids = batch.column("id").to_pylist()
        count = len(ids)
        columns: dict[str, Any] = {
            "key": batch.column("key"),
            "value": pa.array([_response(number).SerializeToString() for number in ids], pa.binary()),
            "topic": pa.array(["answers"] * count),
            "partition": pa.array([0] * count, pa.int32()),
            "offset": batch.column("id"),
            "timestamp": pa.array([1_767_225_600_000_000] * count, pa.timestamp("us", tz="UTC")),
            "headers": pa.nulls(count, pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))),
        }
        yield pa.RecordBatch.from_arrays(list(columns.values()), list(columns))


def _response(number: int) -> Response:
    message = Response(sequence=number, isprocessed=True, outcome="OK", result=b"0.97", attempt=1, worker="replica-0")
    message.origin.topic, message.origin.partition, message.origin.offset = "requests", number % 4, number
    message.started_at.seconds = message.finished_at.seconds = 1_767_225_600
    message.cpu_seconds = 0.01
    return message


def _decode(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield every field of an answer as protobuf returns it, without checks."""
    for batch in batches:
        rows = [_fields(message) for message in map(Response.FromString, batch.column(0).to_pylist())]
        columns = zip(zip(*rows, strict=True), _FIELDS, strict=True)
        yield pa.RecordBatch.from_arrays([pa.array(column, field.type) for column, field in columns], schema=_FIELDS)


def _decode_to_bronze(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the same with the columns of the record, in the schema of bronze."""
    schema = to_arrow_schema(BRONZE)
    for batch in batches:
        (fields,) = _decode([batch.select(["value"])])
        named = {name: batch.column(name) for name in batch.schema.names}
        named |= dict(zip(_BRONZE_FIELDS, fields.columns, strict=True))
        columns = [named[f.name].cast(f.type) if f.name in named else pa.nulls(len(batch), f.type) for f in schema]
        yield pa.RecordBatch.from_arrays(columns, schema=schema)


def _fields(m: Response) -> tuple[Any, ...]:
    error, origin, started, finished = m.error, m.origin, m.started_at, m.finished_at
    return (
        *(m.sequence, m.isprocessed, m.outcome, m.result, error.type, error.message, error.traceback),
        *(origin.topic, origin.partition, origin.offset, m.attempt, m.worker),
        *(started.seconds, started.nanos, finished.seconds, finished.nanos, m.cpu_seconds),
    )
