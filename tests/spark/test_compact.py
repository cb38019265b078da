"""Compaction: fewer files, the same rows, at every moment."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as arrow
import pytest

from pipeline.errors import JobError
from pipeline.jobs.compact import compact
from pipeline.lake.bronze import Bronze, retry_if_files_replaced
from pipeline.lake.files import Files
from pipeline.lake.submission import Submission
from pipeline.settings import CompactSettings
from tests.spark.support import tables
from tests.spark.support.tables import answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY, NEXT = tables.NOON.date(), tables.NOON.date() + dt.timedelta(days=1)
QUERY = "0f3e"


@pytest.fixture
def settings(tmp_path: Path) -> CompactSettings:
    return CompactSettings(job=tables.JOB, lake=str(tmp_path), progress="off", before=NEXT)


def fill(spark: SparkSession, settings: CompactSettings, batches: int, committed: int | None = None) -> Bronze:
    """Write ``batches`` batches of ten rows, and a checkpoint that has committed the first ``committed`` of them."""
    Submission("", "exactly-once", ack_topic=tables.ACKS).write(spark, settings)
    bronze, checkpoint = Bronze(spark, settings), Path(settings.checkpoint)
    for batch in range(batches):
        rows = [answer(10 * batch + number) for number in range(10)]
        bronze.write(tables.bronze(spark, rows), QUERY, batch)
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    for batch in range(batches if committed is None else committed):
        (checkpoint / "commits" / str(batch)).touch()
    bronze.record_query(QUERY, {"checkpoint": settings.checkpoint, "topics": {}, "allow_data_loss": False, "lost": []})
    return bronze


def offsets(bronze: Bronze) -> list[int]:
    return sorted(row.offset for row in bronze.read().select("offset").collect())


def folder(settings: CompactSettings) -> str:
    return settings.table("bronze", f"topic={tables.ACKS}").folder


def files(settings: CompactSettings) -> list[str]:
    return [file for file in arrow.dataset(folder(settings)).files if "/_" not in file]


def test_a_compaction_merges_folders_into_one_with_the_same_rows(
    spark: SparkSession, settings: CompactSettings
) -> None:
    bronze = fill(spark, settings, 4)
    before = sorted(map(str, bronze.stored().collect()))
    assert compact(spark, settings) == 4
    assert sorted(map(str, bronze.read().collect())) == before
    assert len(files(settings)) == 1
    assert arrow.dataset(folder(settings)).count_rows() == 40
    assert compact(spark, settings) == 0


def test_a_batch_with_rows_of_a_day_that_is_not_closed_is_not_compacted(
    spark: SparkSession, settings: CompactSettings
) -> None:
    bronze = fill(spark, settings, 3)
    late = [answer(90), answer(91, date=NEXT)]
    bronze.write(tables.bronze(spark, late), QUERY, 3)
    assert compact(spark, settings) == 3
    assert [part.query for part in tables.parts(bronze)].count(QUERY) == 1
    assert offsets(bronze) == [*range(30), 90, 91]


def test_a_batch_that_may_be_written_again_is_not_compacted(spark: SparkSession, settings: CompactSettings) -> None:
    bronze = fill(spark, settings, 4, committed=3)
    assert compact(spark, settings) == 3
    bronze.write(tables.bronze(spark, [answer(30 + number) for number in range(10)]), QUERY, 3)
    assert offsets(bronze) == [*range(40)]
    assert arrow.dataset(folder(settings)).count_rows() == 40


def test_batches_whose_commits_spark_has_removed_are_compacted(spark: SparkSession, settings: CompactSettings) -> None:
    """Of 150 batches Spark keeps the commits of the last 100."""
    Submission("", "exactly-once", ack_topic=tables.ACKS).write(spark, settings)
    bronze, checkpoint = Bronze(spark, settings), Path(settings.checkpoint)
    bronze.write(tables.bronze(spark, [answer(0)]), QUERY, 0)
    (first,) = tables.parts(bronze)
    for batch in range(1, 150):
        shutil.copytree(first.uri.removeprefix("file:"), f"{folder(settings)}/query={QUERY}/batch={batch}")
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{QUERY}"}}')
    for batch in range(49, 149):
        (checkpoint / "commits" / str(batch)).touch()
    bronze.record_query(QUERY, {"checkpoint": settings.checkpoint, "topics": {}, "allow_data_loss": False, "lost": []})
    assert compact(spark, settings) == 149, "all but the one that is not committed"


@pytest.mark.parametrize("step", ["rename", "delete"])
def test_a_compaction_killed_at_any_step_loses_nothing_and_the_next_one_completes_it(
    spark: SparkSession, settings: CompactSettings, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    bronze = fill(spark, settings, 4)

    def killed(_self: Files, *_: str) -> None:
        raise JobError("killed")

    with monkeypatch.context() as patched:
        patched.setattr(Files, step, killed)
        with pytest.raises(JobError, match="killed"):
            compact(spark, settings)
    assert offsets(bronze) == [*range(40)]
    compact(spark, settings)
    assert offsets(bronze) == [*range(40)]
    assert arrow.dataset(folder(settings)).count_rows() == 40


def test_two_compactions_at_the_same_time_show_no_row_twice(spark: SparkSession, settings: CompactSettings) -> None:
    bronze = fill(spark, settings, 4)
    compact(spark, settings)
    (made,) = Path(folder(settings)).glob("query=compact-*")
    other = Path(f"{made}0")
    shutil.copytree(made, other)
    listed = json.loads((other / "_replaces.json").read_text())
    (other / "_replaces.json").write_text(json.dumps({**listed, "query": f"{listed['query']}0"}))
    (other / "._replaces.json.crc").unlink(missing_ok=True)
    assert offsets(bronze) == [*range(40)]


def test_a_reader_sees_each_row_once_during_a_compaction(spark: SparkSession, settings: CompactSettings) -> None:
    bronze, seen, over = fill(spark, settings, 6), [], threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.append(retry_if_files_replaced(lambda: bronze.read().count()))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        assert compact(spark, settings) == 6
    finally:
        over.set()
        reader.join()
    assert set(seen) == {60}


def test_a_reader_that_has_listed_the_old_files_reads_again_after_the_error(
    spark: SparkSession, settings: CompactSettings
) -> None:
    bronze = fill(spark, settings, 3)
    listed = [bronze.read()]
    compact(spark, settings)

    def read() -> int:
        frame = listed.pop() if listed else bronze.read()
        return int(frame.count())

    assert retry_if_files_replaced(read) == 30
    assert listed == []
