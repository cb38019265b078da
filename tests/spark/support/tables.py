"""Small tables of what the pipeline reads, with everything in place but what a test is about."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

from pipeline.schemas import ANSWER, BRONZE, DEAD_LETTER, MANIFEST
from pipeline.table_io import table_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

JOB = "j"
REQUESTS, ACKS, LETTERS = "requests", "acks", "letters"
NOON = dt.datetime(2026, 1, 2, 12, 0, 0, tzinfo=dt.UTC)

Row = dict[str, Any]


def at(seconds: float) -> dt.datetime:
    """So many seconds after noon."""
    return NOON + dt.timedelta(seconds=seconds)


def answer(number: int, *, partition: int = 0, offset: int | None = None, **columns: Any) -> Row:
    """A bronze row: the good answer to request ``number``, which stands at that offset of the same partition."""
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
    """The answer to a request that was not processed; ``offset`` and the like as columns."""
    failure: Row = {"isprocessed": False, "outcome": outcome, "error_type": "ValueError", "error_message": "no good"}
    return answer(number) | failure | {"result": None} | columns


def letter(number: int, *, offset: int = 0, **columns: Any) -> Row:
    """The dead letter of request ``number``."""
    row = answer(number, topic=LETTERS, kind=DEAD_LETTER, raw=b"\x08\x01", error_type="ValueError", **columns)
    nothing = dict.fromkeys(("sequence", "isprocessed", "outcome", "result", "worker", "cpu_seconds"))
    return row | nothing | {"offset": offset, "started_at": None, "finished_at": None}


def garbage(*, offset: int, **columns: Any) -> Row:
    """A record of the ack topic that is no answer."""
    row: Row = {"topic": ACKS, "partition": 0, "offset": offset, "timestamp": at(0), "kind": ANSWER}
    return row | {"decode_error": "not a Response", "raw": b"\xff", "date": NOON.date()} | columns


def bronze(spark: SparkSession, rows: Iterable[Mapping[str, Any]]) -> DataFrame:
    """A bronze table of these rows."""
    return table_of(spark, [tuple(row.get(name) for name in BRONZE.names) for row in rows], BRONZE)


def manifest(spark: SparkSession, rows: int) -> DataFrame:
    """A manifest of so many requests."""
    lines = [(number, f"id-{number}", f"payload {number}", "0" * 64, 0, None) for number in range(rows)]
    return table_of(spark, lines, MANIFEST)
