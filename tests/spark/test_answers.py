"""The tables made from bronze: answers, with one row for each answered request, and the exceptions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from pipeline.errors import JobError
from pipeline.jobs.answers import answers
from pipeline.lake.bronze import Bronze
from pipeline.lake.schemas import ANSWERS
from pipeline.lake.submission import Submission
from pipeline.settings import AnswersSettings
from tests.spark.support import tables
from tests.spark.support.tables import answer, dead_letter, failed, garbage

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


@pytest.fixture
def settings(tmp_path: Path) -> AnswersSettings:
    return AnswersSettings(job=tables.JOB, lake=str(tmp_path), progress="off")


def prepare(spark: SparkSession, settings: AnswersSettings, rows: list[tables.Row], planned: int = 6) -> None:
    tables.manifest(spark, planned).write.parquet(settings.manifest)
    Submission("", "exactly-once", ack_topic=tables.ACKS).write(spark, settings)
    Bronze(spark, settings).write(tables.bronze(spark, rows), "query", 0)


def table(spark: SparkSession, settings: AnswersSettings, name: str) -> list[Any]:
    return spark.read.parquet(f"{settings.lake}/{name}/job={settings.job}").collect()


def test_each_request_has_its_first_answer(spark: SparkSession, settings: AnswersSettings) -> None:
    rows = [
        answer(0),
        answer(1, offset=30, result="später".encode()),
        answer(1, offset=20, result="zuerst ü".encode()),
        answer(2, result=b"\xff\xfe"),
        failed(3),
        answer(77),
        garbage(offset=99),
        dead_letter(3),
    ]
    prepare(spark, settings, rows)
    assert answers(spark, settings)[1:] == (4, 1, 1)
    found = spark.read.parquet(settings.answers)
    assert found.columns == ANSWERS.fieldNames()
    by_sequence = {row.sequence: row for row in found.collect()}
    assert by_sequence.keys() == {0, 1, 2, 3}
    first = by_sequence[1]
    assert (first.source_id, first.result_text, first.ack_offset) == ("id-1", "zuerst ü", 20)
    assert by_sequence[2].result_text is None
    assert bytes(by_sequence[2].result) == b"\xff\xfe"
    assert (by_sequence[3].outcome, by_sequence[3].isprocessed, by_sequence[3].result_text) == (
        "DEAD_LETTERED",
        False,
        None,
    )
    assert [row.sequence for row in table(spark, settings, "failures")] == [3]
    assert sorted((row.offset, row.place) for row in table(spark, settings, "duplicates")) == [
        (20, "first"),
        (30, "surplus"),
    ]
    assert [row.origin_offset for row in table(spark, settings, "dead_letters")] == [3]


def test_a_second_call_replaces_the_tables(spark: SparkSession, settings: AnswersSettings) -> None:
    prepare(spark, settings, [answer(0)])
    answers(spark, settings)
    Bronze(spark, settings).write(tables.bronze(spark, [answer(1)]), "query", 1)
    assert answers(spark, settings).rows == 2
    assert spark.read.parquet(settings.answers).count() == 2


def test_a_job_without_a_manifest_and_without_kafka_is_refused_with_a_clear_line(
    spark: SparkSession, settings: AnswersSettings
) -> None:
    with pytest.raises(JobError, match="has no manifest"):
        answers(spark, settings)
