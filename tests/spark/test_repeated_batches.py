"""Batches that are written again after a kill, and what kills leave beside them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.lake.bronze import Bronze
from pipeline.lake.submission import Submission
from pipeline.settings import Common
from tests.spark.support import tables
from tests.spark.support.tables import answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUERY = "0f3e"


@pytest.fixture
def bronze(spark: SparkSession, tmp_path: Path) -> Bronze:
    """A table with one batch of ten rows."""
    common = Common(job=tables.JOB, lake=str(tmp_path), progress="off")
    Submission("", "exactly-once", ack_topic=tables.ACKS).write(spark, common)
    bronze = Bronze(spark, common)
    write(spark, bronze)
    return bronze


def write(spark: SparkSession, bronze: Bronze, rows: int = 10) -> None:
    bronze.write(tables.bronze(spark, [answer(number) for number in range(rows)]), QUERY, 0)


def test_the_draft_of_a_killed_writer_is_no_query(bronze: Bronze) -> None:
    facts = {"checkpoint": "somewhere", "topics": {}, "allow_data_loss": False, "lost": []}
    bronze.record_query(QUERY, facts)
    Path(bronze.path, "_queries", "_3b1c").write_text('{"begun": "20')
    assert bronze.queries() == {QUERY: facts}
