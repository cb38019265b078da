"""Small tables for the pipeline, with valid defaults for all columns that a test does not set."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from pipeline.lake.files import Files
from pipeline.lake.manifest import METADATA, Manifest, digests_of, run_of
from pipeline.lake.schemas import ANSWER, BRONZE, DEAD_LETTER, MANIFEST
from pipeline.lake.tables import local_dataframe

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.lake.bronze import Bronze
    from pipeline.lake.parquet_batches import Part

JOB = "j"
REQUESTS, ACKS, DEAD_LETTERS = "requests", "acks", "dead_letters"
NOON = dt.datetime(2026, 1, 2, 12, 0, 0, tzinfo=dt.UTC)

Row = dict[str, Any]


def at(seconds: float) -> dt.datetime:
    """Return the time ``seconds`` after noon."""
    return NOON + dt.timedelta(seconds=seconds)


def answer(number: int, *, partition: int = 0, offset: int | None = None, **columns: Any) -> Row:
    """Return a bronze row: the good answer to request ``number``, at that offset of the same partition."""
    offset = number if offset is None else offset
    row: Row = {
        "topic": ACKS,
        "partition": partition,
        "offset": offset,
        "timestamp": at(number + 2),
        "kind": ANSWER,
        "key": f"{JOB}/{number:010d}".encode(),
        "key_text": f"{JOB}/{number:010d}",
        "job": JOB,
        "request_sequence": number,
        "sequence": number,
        "isprocessed": True,
        "outcome": "OK",
        "result": b"done",
        "origin_topic": REQUESTS,
        "origin_partition": partition,
        "origin_offset": number,
        "attempt": 1,
        "worker": "w1",
        "started_at": at(number),
        "finished_at": at(number + 1),
        "cpu_seconds": 0.5,
        "date": NOON.date(),
    }
    return row | columns


def failed(number: int, outcome: str = "DEAD_LETTERED", **columns: Any) -> Row:
    """Return the answer to a request that was not processed. ``columns`` may set ``offset`` and others."""
    failure: Row = {"isprocessed": False, "outcome": outcome, "error_type": "ValueError", "error_message": "no good"}
    return answer(number) | failure | {"result": None} | columns


def dead_letter(number: int, *, offset: int = 0, **columns: Any) -> Row:
    """Return the dead letter of request ``number``."""
    row = answer(number, topic=DEAD_LETTERS, kind=DEAD_LETTER, raw=b"\x08\x01", error_type="ValueError", **columns)
    nothing = dict.fromkeys(("sequence", "isprocessed", "outcome", "result", "worker", "cpu_seconds"))
    return row | nothing | {"offset": offset, "started_at": None, "finished_at": None}


def garbage(*, offset: int, **columns: Any) -> Row:
    """Return a record of the ack topic that is not an answer."""
    row: Row = {"topic": ACKS, "partition": 0, "offset": offset, "timestamp": at(0), "kind": ANSWER}
    return row | {"decode_error": "not a Response", "raw": b"\xff", "date": NOON.date()} | columns


def bronze(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """Return a bronze table of these rows."""
    return local_dataframe(spark, [tuple(row.get(name) for name in BRONZE.names) for row in rows], BRONZE)


def manifest(spark: SparkSession, rows: int) -> DataFrame:
    """Return a manifest of ``rows`` requests."""
    lines = [(number, f"id-{number}", f"payload {number}", "0" * 64, 0, None) for number in range(rows)]
    return local_dataframe(spark, lines, MANIFEST)


def plan(spark: SparkSession, path: str, rows: int) -> str:
    """Write a manifest of ``rows`` requests at a path, as ``pipeline plan`` does. Return the id of its run."""
    table = manifest(spark, rows)
    table.write.parquet(path)
    digest, key_digest = digests_of(table)
    made = Manifest(JOB, rows, digest, 1, {}, NOON.isoformat(), run_of(digest), key_digest=key_digest)
    Files(spark).write_json(f"{path}/{METADATA}", made._asdict())
    return made.run


def parts(table: Bronze) -> list[Part]:
    """Return the folders of a Parquet bronze."""
    assert table.parquet is not None
    return table.parquet.parts()
