"""Reading the user's table of work, whatever its format, as text columns with an order."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql import types as T  # noqa: N812 - its customary name

from pipeline.errors import JobError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession

    from pipeline.settings import Source

# What their columns hold is text, whatever it looks like: nothing is inferred.
_UNTYPED = {"csv", "json"}
_OPTIONS = {
    # As RFC 4180 has it: the first line names the columns, quotes are doubled, texts may go over several lines.
    "csv": {"header": "true", "escape": '"', "multiLine": "true", "mode": "FAILFAST"},
    "json": {"mode": "FAILFAST"},
}
_WHOLE = "decimal(38,0)"
_TEXTUAL = (T.StringType, T.NumericType, T.BooleanType, T.DateType, T.TimestampType, T.TimestampNTZType)


def read_source(spark: SparkSession, source: Source) -> DataFrame:
    """The columns asked for, by their own names. JobError if one of them is not there."""
    reader = spark.read.format(source.format).options(**_OPTIONS.get(source.format, {})).options(**dict(source.options))
    names = [name for name in (source.id, source.payload, source.deadline) if name is not None]
    if source.format == "json":
        # As text, so that an object or a list stands there as it was written.
        reader = reader.schema(T.StructType([T.StructField(name, T.StringType()) for name in dict.fromkeys(names)]))
    table = reader.option("url", source.uri).load() if source.format == "jdbc" else _load(reader, source)
    _check_columns(table, names)
    return table


def _load(reader: DataFrameReader, source: Source) -> DataFrame:
    try:
        return reader.load(source.uri)
    except Exception as error:  # of the bridge to Java: Spark has no kind of its own for this
        if source.format == "parquet" and "is not a Parquet file" in str(error):
            raise JobError(f"{source.uri} is not a Parquet file: name its format by --input-format") from None
        raise


def _check_columns(table: DataFrame, names: list[str]) -> None:
    kinds = {field.name: field.dataType for field in table.schema}
    for name in names:
        if name not in kinds:
            raise JobError(f"the input has no column {name!r}: it has {', '.join(kinds)}")
        if not isinstance(kinds[name], _TEXTUAL):
            kind = kinds[name].simpleString()
            raise JobError(f"column {name!r} is of type {kind[:80]}, which has no text of its own: make it a string")


def as_work(table: DataFrame, source: Source) -> DataFrame:
    """``source_id``, ``payload``, ``deadline`` as text, and by what to order: ``rank``, a number or null, and ``id``.

    Ids of CSV and JSON that are whole numbers come first, in the order of numbers; all others in their own order.
    """
    identity = _column(source.id)
    whole = identity.try_cast(_WHOLE) if source.format in _UNTYPED else F.lit(None).cast(_WHOLE)
    return table.select(
        whole.alias("rank"),
        identity.alias("id"),
        identity.cast("string").alias("source_id"),
        _column(source.payload).cast("string").alias("payload"),
        _deadline(table, source).alias("deadline"),
    )


def _deadline(table: DataFrame, source: Source) -> Column:
    """As RFC 3339 has it; texts are left as they are."""
    if source.deadline is None:
        return F.lit(None).cast("string")
    column = _column(source.deadline)
    if isinstance(table.schema[source.deadline].dataType, T.TimestampType | T.TimestampNTZType | T.DateType):
        return F.date_format(column.cast("timestamp"), "yyyy-MM-dd'T'HH:mm:ss.SSS'Z'")
    return column.cast("string")


def _column(name: str) -> Column:
    """A column by its whole name: a dot in it is no way into a struct."""
    return F.col("`" + name.replace("`", "``") + "`")
