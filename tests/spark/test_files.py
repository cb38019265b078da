"""Small files on Hadoop's file systems, here the local one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.errors import JobError
from pipeline.lake.files import Files

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_a_text_is_written_replaced_and_read(spark: SparkSession, tmp_path: Path) -> None:
    files, uri = Files(spark), str(tmp_path / "folder" / "note.txt")
    files.write(uri, "first")
    files.write(uri, "zweitens: größer 🙂\n" * 1000)
    assert files.read(uri) == "zweitens: größer 🙂\n" * 1000
    assert [entry.name for entry in files.entries(str(tmp_path / "folder"))] == ["note.txt"]
    files.write_json(uri, {"a": [1, "ü"]})
    assert files.read_json(uri) == {"a": [1, "ü"]}


def test_folders_are_listed_renamed_and_removed(spark: SparkSession, tmp_path: Path) -> None:
    files, root = Files(spark), f"file://{tmp_path}"
    files.write(f"{root}/a/x", "1")
    files.write(f"{root}/b", "2")
    assert [(entry.name, entry.is_folder) for entry in files.entries(root)] == [("a", True), ("b", False)]
    with pytest.raises(JobError, match="cannot be renamed"):
        files.rename(f"{root}/b", f"{root}/a")
    files.rename(f"{root}/a", f"{root}/c")
    files.delete(f"{root}/c")
    files.delete(f"{root}/c")
    assert not files.exists(f"{root}/c")
    assert files.entries(f"{root}/c") == []


def test_a_pattern_finds_paths(spark: SparkSession, tmp_path: Path) -> None:
    files = Files(spark)
    for name in ("a=1/x", "a=2/x", "a=2/y"):
        files.write(f"{tmp_path}/{name}", "")
    assert files.glob(f"{tmp_path}/a=*/x") == [f"file:{tmp_path}/a=1/x", f"file:{tmp_path}/a=2/x"]
    assert files.glob(f"{tmp_path}/b/*") == files.glob(f"{tmp_path}/b") == []


def test_the_error_of_a_missing_file_names_the_file(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(JobError, match="nothing does not exist"):
        Files(spark).read(f"{tmp_path}/nothing")
