"""What is done differently with Spark 3.5 and 4. The other modules use only what both have."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark
from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql import types as T  # noqa: N812 - its customary name
from pyspark.sql.pandas.types import to_arrow_schema

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

LARGEST_INT = 2**31 - 1
_IS_4 = int(pyspark.__version__.partition(".")[0]) >= 4  # noqa: PLR2004 - its number


def to_arrow(frame: DataFrame) -> pa.Table:
    """Return all rows of a small table."""
    if _IS_4:
        return frame.toArrow()
    table: Any = frame
    return pa.Table.from_batches(table._collect_as_arrow(), to_arrow_schema(frame.schema))  # noqa: SLF001 - not public


def local_dataframe(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: T.StructType) -> DataFrame:
    """Return a small table of rows from the driver.

    With Spark 4 the rows travel as Arrow. For Python rows, Spark has to start Python workers first.
    """
    if not _IS_4:
        return spark.createDataFrame([tuple(row) for row in rows], schema)
    fields = to_arrow_schema(schema)
    columns = list(zip(*rows, strict=True)) or [()] * len(fields)
    arrays: list[Any] = [pa.array(column, field.type) for column, field in zip(columns, fields, strict=True)]
    table: Any = pa.Table.from_arrays(arrays, schema=fields)
    return spark.createDataFrame(table, schema)


def struct_type(ddl: str) -> T.StructType:
    """Return the schema of a text such as ``part int, first long``."""
    schema: Any = T._parse_datatype_string(ddl)  # noqa: SLF001 - not public before Spark 4
    return T.StructType(schema.fields)


def is_utf8(column: str) -> Column:
    """Return whether bytes are UTF-8."""
    text = F.col(column).cast("string")
    # Spark 3.5 replaces invalid bytes when it encodes a text. Spark 4 returns them.
    return F.is_valid_utf8(text) if _IS_4 else F.encode(text, "UTF-8") == F.col(column)


def try_int(text: Column) -> Column:
    """Return the int of a text of digits, else null. Spark 3.5 has ``try_cast`` only in SQL."""
    number = F.when(text.rlike("^[0-9]{1,18}$"), text).cast("long")
    return F.when(number <= LARGEST_INT, number).cast("int")
