"""The schemas of the tables. Every table is written and read with one of them; no schema is inferred.

docs/pipeline.md describes the columns.
"""

from __future__ import annotations

from pyspark.sql import types as T  # noqa: N812 - its customary name
from pyspark.sql.pandas.types import from_arrow_schema

from pipeline.messages import schemas
from pipeline.messages.schemas import ANSWER, DEAD_LETTER

__all__ = ["ANSWER", "ANSWERS", "BRONZE", "DEAD_LETTER", "MANIFEST", "OUTGOING", "RECORD"]


def _table(*columns: tuple[str, T.DataType]) -> T.StructType:
    # All columns are nullable: files do not guarantee otherwise, and Spark would rely on it.
    return T.StructType([T.StructField(name, kind) for name, kind in columns])


# One row for each planned request. ``sequence`` is dense, from 0 to the number of rows minus one.
MANIFEST = _table(
    ("sequence", T.IntegerType()),
    ("source_id", T.StringType()),
    ("payload", T.StringType()),
    ("digest", T.StringType()),  # SHA-256 of the payload's UTF-8 bytes, in hex
    ("part", T.IntegerType()),
    ("deadline", T.StringType()),
)

RECORD = from_arrow_schema(schemas.RECORD)
OUTGOING = from_arrow_schema(schemas.OUTGOING)
BRONZE = from_arrow_schema(schemas.BRONZE)

# One row for each planned request that has an answer.
ANSWERS = _table(
    ("sequence", T.IntegerType()),
    ("source_id", T.StringType()),
    ("outcome", T.StringType()),
    ("isprocessed", T.BooleanType()),
    ("result", T.BinaryType()),
    ("result_text", T.StringType()),
    ("error_type", T.StringType()),
    ("error_message", T.StringType()),
    ("attempt", T.LongType()),
    ("worker", T.StringType()),
    ("requested_at", T.TimestampType()),
    ("started_at", T.TimestampType()),
    ("finished_at", T.TimestampType()),
    ("answered_at", T.TimestampType()),
    ("cpu_seconds", T.DoubleType()),
    ("origin_topic", T.StringType()),
    ("origin_partition", T.IntegerType()),
    ("origin_offset", T.LongType()),
    ("ack_partition", T.IntegerType()),
    ("ack_offset", T.LongType()),
)
