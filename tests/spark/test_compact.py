"""Compaction: fewer files, the same rows, at every moment."""

from __future__ import annotations

import datetime as dt
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as arrow
import pytest

from pipeline.bronze import Bronze, undisturbed
from pipeline.compact import compact
from pipeline.errors import JobError
from pipeline.files import Files
from pipeline.settings import CompactSettings
from tests.spark.support import tables
from tests.spark.support.tables import answer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAY, NEXT = tables.NOON.date(), tables.NOON.date() + dt.timedelta(days=1)
LIFE = "0f3e"


@pytest.fixture
def settings(tmp_path: Path) -> CompactSettings:
    return CompactSettings(job=tables.JOB, lake=str(tmp_path), progress="off", before=NEXT)


def fill(spark: SparkSession, settings: CompactSettings, batches: int, committed: int | None = None) -> Bronze:
    """So many batches of ten rows under a checkpoint that is past the first ``committed`` of them."""
    bronze, checkpoint = Bronze(spark, settings), Path(settings.checkpoint)
    for batch in range(batches):
        rows = [answer(10 * batch + number) for number in range(10)]
        bronze.write(tables.bronze(spark, rows), LIFE, batch)
    (checkpoint / "commits").mkdir(parents=True)
    (checkpoint / "metadata").write_text(f'{{"id":"{LIFE}"}}')
    for batch in range(batches if committed is None else committed):
        (checkpoint / "commits" / str(batch)).touch()
    bronze.note_life(LIFE, {"checkpoint": settings.checkpoint, "topics": {}, "allow_data_loss": False, "lost": []})
    return bronze


def offsets(bronze: Bronze) -> list[int]:
    return sorted(row.offset for row in bronze.read().select("offset").collect())


def files(settings: CompactSettings) -> list[str]:
    return [file for file in arrow.dataset(settings.bronze).files if "/_" not in file]


def test_folders_become_one_with_the_same_rows(spark: SparkSession, settings: CompactSettings) -> None:
    bronze = fill(spark, settings, 4)
    before = sorted(map(str, bronze.stored().collect()))
    assert compact(spark, settings) == 4
    assert sorted(map(str, bronze.read().collect())) == before
    assert len(files(settings)) == 1
    assert arrow.dataset(settings.bronze).count_rows() == 40
    assert compact(spark, settings) == 0


def test_days_that_are_not_closed_are_left_alone(spark: SparkSession, settings: CompactSettings) -> None:
    bronze = fill(spark, settings, 3)
    late = [answer(90), answer(91, date=NEXT)]
    bronze.write(tables.bronze(spark, late), LIFE, 3)
    assert compact(spark, settings) == 3
    assert [part.life for part in bronze.parts()].count(LIFE) == 1
    assert offsets(bronze) == [*range(30), 90, 91]


def test_a_batch_that_may_be_written_again_is_left_alone(spark: SparkSession, settings: CompactSettings) -> None:
    bronze = fill(spark, settings, 4, committed=3)
    assert compact(spark, settings) == 3
    bronze.write(tables.bronze(spark, [answer(30 + number) for number in range(10)]), LIFE, 3)
    assert offsets(bronze) == [*range(40)]
    assert arrow.dataset(settings.bronze).count_rows() == 40


@pytest.mark.parametrize("step", ["rename", "delete"])
def test_killed_at_any_step_nothing_is_lost_and_the_next_one_ends_it(
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
    assert arrow.dataset(settings.bronze).count_rows() == 40


def test_a_reader_at_work_notices_nothing(spark: SparkSession, settings: CompactSettings) -> None:
    bronze, seen, over = fill(spark, settings, 6), [], threading.Event()

    def look() -> None:
        while not over.is_set():
            seen.append(undisturbed(lambda: bronze.read().count()))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        assert compact(spark, settings) == 6
    finally:
        over.set()
        reader.join()
    assert set(seen) == {60}


def test_who_has_listed_the_old_files_gets_an_error_and_looks_again(
    spark: SparkSession, settings: CompactSettings
) -> None:
    bronze = fill(spark, settings, 3)
    listed = [bronze.read()]
    compact(spark, settings)

    def read() -> int:
        frame = listed.pop() if listed else bronze.read()
        return int(frame.count())

    assert undisturbed(read) == 30
    assert listed == []
