"""The pipeline's own Parquet protocol: after a kill between any two steps, a table is the old one or the new one."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from pipeline.errors import JobError
from pipeline.lake import tables
from pipeline.lake.files import Files
from pipeline.lake.tables import local_dataframe, publish_table, read_table, replace_table, table_exists
from pipeline.settings import Table

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

METADATA = "_metadata.json"
STEPS = ("delete", "rename", "write_json")  # a call of these is a step; before them, writing the rows is one
NEVER = 99


class KilledError(BaseException):
    """The process was killed. In a real one, no error handler runs. Here, only ``finally`` does."""


class Fate:
    """A stop of the process before a step. If it is ``dead``, its later steps do nothing, as after ``kill -9``."""

    def __init__(self, patched: pytest.MonkeyPatch, before: int, *, dead: bool) -> None:
        self.before, self.dead, self.steps = before, dead, 0
        for name in STEPS:
            patched.setattr(Files, name, self._step(getattr(Files, name)))

    def _step(self, act: Callable[..., None]) -> Callable[..., None]:
        def step(*given: Any) -> None:
            self.steps += 1
            if self.steps == self.before or (self.dead and self.steps > self.before):
                raise KilledError if self.dead else JobError("the disk is full")
            act(*given)

        return step


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "_BETWEEN_RENAMES", 0.0)


def of(spark: SparkSession, version: int) -> tuple[DataFrame, dict[str, dict[str, Any]]]:
    """Return the rows and the metadata of a version."""
    return local_dataframe(spark, [(version,)] * version, "version int"), {METADATA: {"version": version}}


def found(spark: SparkSession, table: Table) -> int | None:
    """Return the version that a reader finds, which must be complete, or None if there is no table."""
    if not table_exists(spark, table):
        return None
    frame, _ = of(spark, 1)
    rows = [row.version for row in read_table(spark, table, frame.schema).collect()]
    version = int(Files(spark).read_json(f"{table.folder}/{METADATA}")["version"])
    assert rows == [version] * version
    return version


def visible(table: Table) -> list[str]:
    return [entry.name for entry in Path(table.folder).parent.iterdir() if not entry.name.startswith((".", "_"))]


@pytest.mark.parametrize("dead", [True, False], ids=["killed", "raised"])
@pytest.mark.parametrize("old", [None, 1], ids=["new", "replaced"])
def test_a_write_stopped_before_any_step_leaves_the_old_table_or_the_new_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, old: int | None, *, dead: bool
) -> None:
    write = publish_table if old is None else replace_table
    for before in range(1, NEVER):
        folder = str(tmp_path / f"{before}" / "job=j")
        table = Table(folder, "parquet", folder)
        if old is not None:
            publish_table(of(spark, old)[0], table, of(spark, old)[1])
        with monkeypatch.context() as patched:
            fate = Fate(patched, before, dead=dead)
            try:
                write(of(spark, 2)[0], table, of(spark, 2)[1])
            except (KilledError, JobError):
                assert found_later(spark, table, patched) in {old, 2}, f"before step {before}"
        replace_table(of(spark, 3)[0], table, of(spark, 3)[1])
        assert found(spark, table) == 3
        assert visible(table) == ["job=j"]
        if fate.steps < before:
            break
    assert before > 3, "there are steps to be stopped at"


def found_later(spark: SparkSession, table: Table, patched: pytest.MonkeyPatch) -> int | None:
    """Return the version that the next process finds."""
    patched.undo()
    patched.setattr(tables, "_BETWEEN_RENAMES", 0.0)
    return found(spark, table)


def test_a_reader_waits_for_a_writer_that_is_between_its_renames(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = str(tmp_path / "job=j")
    table = Table(folder, "parquet", folder)
    publish_table(of(spark, 1)[0], table, of(spark, 1)[1])
    publish_table(of(spark, 2)[0], Table(f"{folder}2", "parquet", f"{folder}2"), of(spark, 2)[1])
    Path(folder).rename(tmp_path / "_job=j.replaced")

    def writer_goes_on(_seconds: float) -> None:
        Path(f"{folder}2").rename(folder)

    monkeypatch.setattr(tables, "time", SimpleNamespace(sleep=writer_goes_on))
    assert found(spark, table) == 2
