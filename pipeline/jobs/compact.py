"""``pipeline compact``: merge the bronze of closed days into few files, without interrupting readers.

The new folder is complete before it gets its name, and lists the folders it replaces: from then on, the pipeline's
readers see it instead of the old ones. A reader that has listed the old files finds them gone and reads again
(``bronze.retry_if_files_replaced``). Delta and Iceberg tables are compacted with the means of their formats.
"""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.lake.bronze import PLACE, Bronze
from pipeline.lake.checkpoint import Checkpoint
from pipeline.lake.parquet_batches import COMPACT, REPLACES
from pipeline.lake.schemas import BRONZE
from pipeline.lake.tables import READING, WRITING

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import SparkSession

    from pipeline.lake.parquet_batches import ParquetBatches, Part
    from pipeline.settings import CompactSettings

_FILE_BYTES = 128 * 1024 * 1024  # approximate size of a compacted file
_UNDER_WAY = "_compacting-"  # prefix of the name of an incomplete folder


def compact(spark: SparkSession, settings: CompactSettings) -> int:
    """Compact the days before ``settings.before``. Return how many folders became one.

    Raise JobError if the folders have lost rows, or if the number of rows written differs from the number read.
    """
    bronze = Bronze(spark, settings)
    if bronze.parquet is None:
        if bronze.versioned is not None and bronze.exists():
            bronze.versioned.compact(settings.before)
        return 0
    table, queries = bronze.parquet, bronze.queries()
    _tidy(table)
    closed = _closed(spark, table, queries, settings.before)
    if len(closed) < 2:  # noqa: PLR2004 - a single folder is already compact
        return 0
    _merge(spark, table, closed)
    _tidy(table)
    return len(closed)


def _tidy(bronze: ParquetBatches) -> None:
    """Remove replaced folders and the remains of a killed compaction."""
    for uri in bronze.replaced():
        bronze.files.delete(uri)
    for uri in bronze.files.glob(f"{bronze.path}/{_UNDER_WAY}*"):
        bronze.files.delete(uri)


def _closed(
    spark: SparkSession, bronze: ParquetBatches, queries: dict[str, dict[str, Any]], before: dt.date
) -> list[Part]:
    """Return the folders that hold only records of closed days and will not be written again."""
    parts = [part for part in bronze.parts() if not part.query.startswith(COMPACT)]
    if not parts:
        return []
    place = F.regexp_extract("_metadata.file_path", r"query=([^/]+/batch=\d+)/", 1)
    newest = (
        spark.read.schema(BRONZE)
        .options(**READING)
        .parquet(*(part.uri for part in parts))
        .groupBy(place.alias("place"))
        .agg(F.max("date").alias("newest"))
    )
    still_open = {row.place for row in newest.where(F.col("newest") >= F.lit(before)).collect()}
    final = functools.partial(_is_final, bronze, queries)
    return [part for part in parts if f"{part.query}/batch={part.batch}" not in still_open and final(part)]


def _is_final(bronze: ParquetBatches, queries: dict[str, dict[str, Any]], part: Part) -> bool:
    """Return whether its checkpoint is past it. A deleted checkpoint writes no more."""
    if part.query not in queries:
        return False
    checkpoint = Checkpoint(bronze.files, queries[part.query]["checkpoint"])
    return checkpoint.query_id() != part.query or checkpoint.is_final(part.batch)


def _merge(spark: SparkSession, bronze: ParquetBatches, parts: list[Part]) -> None:
    if lost := bronze.lost_rows(parts):
        raise JobError(f"{lost} rows of {bronze.path} are lost: restore its files from a backup before compacting them")
    query = f"{COMPACT}{uuid.uuid4().hex}"
    draft = f"{bronze.path}/{_UNDER_WAY}{uuid.uuid4().hex}"
    rows = spark.read.schema(BRONZE).options(**READING).parquet(*(part.uri for part in parts))
    files = 1 + sum(bronze.files.size(part.uri) for part in parts) // _FILE_BYTES
    # In the order of the topics: similar records compress well together, and a search by offset skips most files.
    rows.repartitionByRange(files, *PLACE).sortWithinPartitions(*PLACE).write.options(**WRITING).parquet(
        f"{draft}/batch=0"
    )
    expected, written = rows.count(), spark.read.parquet(f"{draft}/batch=0").count()
    if expected != written:
        raise JobError(f"{written} rows were written instead of {expected}: the old files stay as they are")
    bronze.record_rows(f"{draft}/batch=0", written)
    bronze.files.write_json(f"{draft}/{REPLACES}", {"query": query, "replaces": [part.name for part in parts]})
    bronze.files.rename(draft, f"{bronze.path}/query={query}")
