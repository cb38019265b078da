"""Tables in a lake: written once or replaced as a whole, and visible only when complete.

Delta and Iceberg ensure this themselves. A Parquet table is complete when its folder has ``_SUCCESS``, which Spark
writes last. Each folder is first written under a hidden name and then renamed.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import StructType

from pipeline.errors import JobError
from pipeline.lake import spark_versions
from pipeline.lake.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import Table

# A site may have other defaults. With those, a missing file would silently shrink a table, and a table without
# ``_SUCCESS`` would stay invisible. Parquet's writers store checksums of the pages, but its readers skip them.
READING = {
    "ignoreMissingFiles": "false",
    "ignoreCorruptFiles": "false",
    "parquet.page.verify-checksum.enabled": "true",
}
WRITING = {"mapreduce.fileoutputcommitter.marksuccessfuljobs": "true"}
ICEBERG_WRITING = {"fanout-enabled": "true"}  # so that rows need not be sorted by partition first
_MARKS = {"parquet": "_SUCCESS", "delta": "_delta_log"}
_BETWEEN_RENAMES = 1.0  # seconds after which a writer between two renames is taken for dead


def local_dataframe(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """Return a small table of rows from the driver. A schema may be a text such as ``part int, first long``."""
    known = schema if isinstance(schema, StructType) else spark_versions.struct_type(schema)
    return spark_versions.local_dataframe(spark, list(rows), known)


# ---------------------------------------------------------------- reading


def sql_name(table: Table) -> str:
    """Return the SQL name of a table."""
    return table.name if table.in_catalog else f"{table.format}.`{table.name}`"


def table_exists(spark: SparkSession, table: Table) -> bool:
    """Return whether there is a complete table."""
    if table.in_catalog:
        return bool(spark.catalog.tableExists(table.name))
    if table.format == "parquet":
        _restore(Files(spark), table.name)
    return Files(spark).exists(f"{table.folder}/{_MARKS[table.format]}")


def load_table(spark: SparkSession, table: Table) -> DataFrame:
    """Return an existing table with all of its columns."""
    if table.in_catalog:
        return spark.table(table.name)
    return spark.read.format(table.format).options(**READING).load(table.name)


def read_table(spark: SparkSession, table: Table, schema: StructType) -> DataFrame:
    """Return the table with exactly these columns. Raise JobError if no complete table exists."""
    if not table_exists(spark, table):
        raise JobError(f"there is no {table.format} table {table.name}")
    if table.format == "parquet":
        return spark.read.schema(schema).options(**READING).parquet(table.name).select(*schema.fieldNames())
    return load_table(spark, table).select(*schema.fieldNames())


# ---------------------------------------------------------------- writing


def publish_table(frame: DataFrame, table: Table, metadata: dict[str, dict[str, Any]] | None = None) -> None:
    """Write a new table. ``metadata`` has objects by file name, which become visible together with the table.

    Raise JobError if another table has appeared there meanwhile.
    """
    if table.format != "parquet":  # a commit publishes it and replaces what a killed call left
        replace_table(frame, table, metadata)
        return
    with _written(frame, table.name) as hidden:
        _write_metadata(frame, hidden, metadata)
        Files(frame.sparkSession).rename(hidden, table.name)


def _write_metadata(frame: DataFrame, path: str, metadata: dict[str, dict[str, Any]] | None) -> None:
    for name, content in (metadata or {}).items():
        Files(frame.sparkSession).write_json(f"{path}/{name}", content)


def replace_table(frame: DataFrame, table: Table, metadata: dict[str, dict[str, Any]] | None = None) -> None:
    """Write a table that may exist already. Readers find the old one or the new one. ``metadata`` as above.

    A Parquet table is missing for a moment between two renames. Readers then get an error, never half a table. If the
    call is killed there, the next one that looks for the table restores the old one.
    """
    if table.format == "parquet":
        _replace_folder(frame, table.name, metadata)
        return
    if table.format == "iceberg":
        frame.writeTo(table.name).using("iceberg").options(**ICEBERG_WRITING).createOrReplace()
    else:
        writer = frame.write.format("delta").mode("overwrite").option("overwriteSchema", "true")
        writer.saveAsTable(table.name) if table.in_catalog else writer.save(table.name)
    _write_metadata(frame, table.folder, metadata)


def _replace_folder(frame: DataFrame, path: str, metadata: dict[str, dict[str, Any]] | None) -> None:
    files = Files(frame.sparkSession)
    with _written(frame, path) as hidden:
        _write_metadata(frame, hidden, metadata)
        _restore(files, path)
        old = _replaced(path)
        if files.exists(path):
            files.delete(old)
            files.rename(path, old)
        files.rename(hidden, path)
        files.delete(old)


def _restore(files: Files, path: str) -> None:
    """Give the old table its name again if a call was killed between the two renames of a replacement."""
    old = _replaced(path)
    if files.exists(path) or not files.exists(old):
        return
    time.sleep(_BETWEEN_RENAMES)
    if not files.exists(path) and files.exists(old):
        files.rename(old, path)


@contextlib.contextmanager
def _written(frame: DataFrame, path: str) -> Iterator[str]:
    """Write the table under a hidden name beside its path. Remove at the end whatever is still there."""
    hidden = _hidden(path)
    try:
        frame.write.options(**WRITING).parquet(hidden)
        yield hidden
    finally:
        Files(frame.sparkSession).delete(hidden)


def _hidden(path: str) -> str:
    """Return a new name beside a path, with a prefix that Spark ignores."""
    return _beside(path, uuid.uuid4().hex)


def _replaced(path: str) -> str:
    """Return the name of the old table while another one takes its place."""
    return _beside(path, "replaced")


def _beside(path: str, ending: str) -> str:
    parent, _, name = path.rpartition("/")
    return f"{parent}/_{name}.{ending}"


@contextlib.contextmanager
def scratch(spark: SparkSession, path: str) -> Iterator[str]:
    """Yield the name of a folder beside ``path`` for temporary data of this run. Remove the folder at the end."""
    folder = _hidden(path)
    try:
        yield folder
    finally:
        Files(spark).delete(folder)
