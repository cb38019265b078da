"""Reading the user's table of work, in any format, as text columns with an order."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import TYPE_CHECKING

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql import types as T  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.lake.files import Files

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from pipeline.settings import Source

# Their columns stay text, whatever they look like: no type is inferred.
_UNTYPED = {"csv", "json"}
_OPTIONS = {
    # As in RFC 4180: the first line names the columns, quotes are doubled, and a text may span several lines.
    "csv": {"header": "true", "escape": '"', "multiLine": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}
_SMALL = 1_000_000  # bytes
_WHOLE = "decimal(38,0)"
_TEXTUAL = (T.StringType, T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType)


def is_small(source: Source | None) -> bool:
    """Return whether the table of work is known to have few rows: a local file of at most a megabyte."""
    file = None if source is None else Path(source.uri)
    return file is not None and file.is_file() and file.stat().st_size <= _SMALL


def read_source(spark: SparkSession, source: Source) -> DataFrame:
    """Return the columns of the source under their own names. Raise JobError if one does not exist."""
    names = [name for name in (source.id, source.payload, source.deadline) if name is not None]
    table = _in_session(spark, source.frame) if source.frame is not None else _found(spark, source, names)
    _check_columns(table, names)
    return table


def _found(spark: SparkSession, source: Source, names: list[str]) -> DataFrame:
    """Return the source from its place. Raise JobError if it is not there."""
    if source.format == "table":
        return _by_name(spark, source)
    reader = spark.read.format(source.format).options(**_OPTIONS.get(source.format, {})).options(**dict(source.options))
    if source.format == "json":
        # As text, so that an object or a list stays as it was written.
        reader = reader.schema(T.StructType([T.StructField(name, T.StringType()) for name in dict.fromkeys(names)]))
    return reader.option("url", source.uri).load() if source.format == "jdbc" else _load(spark, reader, source)


def _by_name(spark: SparkSession, source: Source) -> DataFrame:
    try:
        return spark.read.options(**dict(source.options)).table(source.uri)
    except AnalysisException as error:
        reason = str(error).splitlines()[0]
        raise JobError(f"--input-table {source.uri} cannot be read: {reason[:300]}") from error


def _in_session(spark: SparkSession, frame: DataFrame) -> DataFrame:
    """Return a table of another session, evaluated with this session's time zone and arithmetic."""
    name = f"pipeline_{uuid.uuid4().hex}"
    frame.createGlobalTempView(name)
    try:
        return spark.table(f"global_temp.{name}")
    finally:
        spark.catalog.dropGlobalTempView(name)


def _load(spark: SparkSession, reader: DataFrameReader, source: Source) -> DataFrame:
    # Read as Parquet, a Delta table would also have the rows that were deleted or replaced.
    if source.format == "parquet" and Files(spark).exists(f"{source.uri}/_delta_log"):
        raise JobError(f"{source.uri} is a Delta table: give --input-format delta")
    try:
        return reader.load(source.uri)
    except Exception as error:  # of the bridge to Java: Spark has no class for this case
        if source.format == "parquet" and "is not a Parquet file" in str(error):
            raise JobError(f"{source.uri} is not a Parquet file: name its format with --input-format") from None
        raise


def _check_columns(table: DataFrame, names: list[str]) -> None:
    kinds = {field.name: field.dataType for field in table.schema}
    for name in names:
        if name not in kinds:
            raise JobError(f"the input has no column {name!r}: it has {', '.join(kinds)}")
        if not isinstance(kinds[name], _TEXTUAL):
            kind = kinds[name].simpleString()
            raise JobError(f"column {name!r} is of type {kind[:80]}, which has no text form: make it a string")


def as_work(table: DataFrame, source: Source) -> DataFrame:
    """Return ``source_id``, ``payload`` and ``deadline`` as text, and the order: ``rank``, a number or null, ``id``.

    Whole numbers among the ids of CSV and JSON come first, in numerical order. All other ids follow in text order.
    """
    identity = _column(source.id)
    # In SQL, because Spark 3.5 cannot try to cast a column otherwise.
    whole = F.expr(f"try_cast({_quoted(source.id) if source.format in _UNTYPED else 'null'} AS {_WHOLE})")
    return table.select(
        whole.alias("rank"),
        identity.alias("id"),
        identity.cast("string").alias("source_id"),
        _column(source.payload).cast("string").alias("payload"),
        _deadline(table, source).alias("deadline"),
    )


def _deadline(table: DataFrame, source: Source) -> Column:
    """Return timestamps in the form of RFC 3339. Texts stay as they are."""
    if source.deadline is None:
        return F.lit(None).cast("string")
    column = _column(source.deadline)
    if isinstance(table.schema[source.deadline].dataType, T.TimestampType | T.TimestampNTZType | T.DateType):
        return F.date_format(column.cast("timestamp"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    return column.cast("string")


def _column(name: str) -> Column:
    """Return a column by its whole name. A dot in the name does not select a struct field."""
    return F.col(_quoted(name))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
