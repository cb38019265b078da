"""Tables in a lake: written once or replaced as a whole, and seen only when complete.

A path is any URI that Hadoop knows. A Parquet table is complete when its folder has ``_SUCCESS``, which Spark writes
last; every folder is written under a hidden name first and then renamed.
"""

from __future__ import annotations

import contextlib
import uuid
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from pipeline.errors import JobError
from pipeline.files import Files

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import TableFormat

_MARKS = {"parquet": "_SUCCESS", "delta": "_delta_log"}


def table_of(spark: SparkSession, rows: Iterable[Sequence[Any]], schema: StructType | str) -> DataFrame:
    """A small table of rows that the driver has. A schema as text is DDL.

    Handed over as Arrow: of Python's own rows Spark makes a table by Python workers, which have to be started first.
    """
    known: Any = schema if isinstance(schema, StructType) else StructType.fromDDL(schema)
    fields = to_arrow_schema(known)
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays: list[Any] = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    table: DataFrame = spark.createDataFrame(pa.Table.from_arrays(arrays, schema=fields), known)
    return table


# ---------------------------------------------------------------- reading


def table_exists(spark: SparkSession, path: str, table_format: TableFormat) -> bool:
    """Whether a complete table stands there."""
    return Files(spark).exists(f"{path}/{_MARKS[table_format]}")


def read_table(spark: SparkSession, path: str, table_format: TableFormat, schema: StructType) -> DataFrame:
    """The table with exactly these columns. JobError if there is none, or none that is complete."""
    if not table_exists(spark, path, table_format):
        raise JobError(f"there is no {table_format} table at {path}")
    reader = spark.read if table_format == "delta" else spark.read.schema(schema)
    return reader.format(table_format).load(path).select(*schema.fieldNames())


# ---------------------------------------------------------------- writing


def publish_table(
    table: DataFrame, path: str, table_format: TableFormat, notes: dict[str, dict[str, Any]] | None = None
) -> None:
    """Write a table that was not there. ``notes`` are objects by file name, seen together with the table.

    JobError if another table has come there in the meantime.
    """
    files = Files(table.sparkSession)
    with _written(table, path, table_format) as hidden:
        for name, content in (notes or {}).items():
            files.write_json(f"{hidden}/{name}", content)
        files.rename(hidden, path)


def replace_table(table: DataFrame, path: str, table_format: TableFormat) -> None:
    """Write a table, whether or not there was one: readers find the old one or the new one.

    With Parquet there is none for the moment between two renames; a reader then gets an error, never half a table.
    """
    if table_format == "delta":
        table.write.format("delta").mode("overwrite").option("overwriteSchema", "true").save(path)
        return
    files = Files(table.sparkSession)
    with _written(table, path, table_format) as hidden:
        old = _hidden(path)
        if files.exists(path):
            files.rename(path, old)
        files.rename(hidden, path)
        files.delete(old)


@contextlib.contextmanager
def _written(table: DataFrame, path: str, table_format: TableFormat) -> Iterator[str]:
    """The table under a hidden name beside its path; whatever is left there at the end is removed."""
    hidden = _hidden(path)
    try:
        table.write.format(table_format).save(hidden)
        yield hidden
    finally:
        Files(table.sparkSession).delete(hidden)


def _hidden(path: str) -> str:
    """A fresh name beside a path; Spark passes over those that begin so."""
    parent, _, name = path.rpartition("/")
    return f"{parent}/_{name}.{uuid.uuid4().hex}"


@contextlib.contextmanager
def scratch(spark: SparkSession, path: str) -> Iterator[str]:
    """The name of a folder beside ``path`` for what only this run needs; removed at the end."""
    folder = _hidden(path)
    try:
        yield folder
    finally:
        Files(spark).delete(folder)
