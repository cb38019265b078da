"""The names of the tables of a lake, and the table formats that are safe in a place. Without Spark."""

from __future__ import annotations

import pytest

from pipeline.errors import SettingsError
from pipeline.settings import Common, TableFormat


def lake(where: str, table_format: TableFormat = "parquet", files: str | None = None) -> Common:
    return Common(job="tuesday", lake=where, table_format=table_format, files=files)


@pytest.mark.parametrize("table_format", ["parquet", "delta"])
def test_the_tables_of_a_folder_are_folders(table_format: TableFormat) -> None:
    table = lake("/data/lake", table_format).table("manifest")
    assert table.name == table.folder == "/data/lake/manifest/job=tuesday"
    assert not table.in_catalog


def test_an_iceberg_table_of_a_folder_is_named_after_its_subfolder() -> None:
    table = lake("/data/lake", "iceberg").table("bronze", "topic=acks")
    assert table.name == "pipeline_lake.`bronze`.`topic=acks`"
    assert table.folder == "/data/lake/bronze/topic=acks"


def test_the_tables_of_a_catalog_have_names_and_a_folder_for_their_files() -> None:
    common = lake("lakehouse.jobs", "iceberg", "s3a://b/jobs")
    assert common.table("bronze", "topic=a-b.c") == (
        "lakehouse.jobs.`bronze_a-b.c`",
        "iceberg",
        "s3a://b/jobs/bronze/topic=a-b.c",
    )
    assert common.answers == "lakehouse.jobs.`answers_tuesday`"
    assert (common.audit, common.checkpoint) == (
        "s3a://b/jobs/audit/job=tuesday",
        "s3a://b/jobs/checkpoints/job=tuesday",
    )


@pytest.mark.parametrize(
    ("where", "table_format", "way_out"),
    [
        ("s3a://bucket/lake", "parquet", "--table-format delta"),
        ("GS://bucket/lake", "parquet", "--table-format delta"),
        ("s3a:/bucket/lake", "parquet", "--table-format delta"),
        ("s3a:/bucket/lake", "iceberg", "--lake catalog.schema"),
        ("s3a://bucket/lake", "iceberg", "--lake catalog.schema"),
        ("lakehouse.jobs", "parquet", "--table-format delta or iceberg"),
    ],
)
def test_the_error_for_an_unsafe_table_format_names_a_safe_alternative(
    where: str, table_format: TableFormat, way_out: str
) -> None:
    with pytest.raises(SettingsError, match=way_out):
        lake(where, table_format)


def test_a_catalog_needs_a_place_for_files() -> None:
    with pytest.raises(SettingsError, match="--files"):
        _ = lake("lakehouse.jobs", "delta").audit
