"""Tables whose answers are attributed to their requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pipeline.audit import attribution
from tests.spark.support import tables

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def by_sequence(frame: DataFrame, rows: int) -> DataFrame:
    return attribution.by_sequence(attribution.answers(frame), tables.JOB, rows)


def by_sequence_of_all(frame: DataFrame) -> DataFrame:
    return attribution.by_sequence(frame, tables.JOB, 100)


def found(frame: DataFrame, *columns: str) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in frame.select(*columns).collect()}
