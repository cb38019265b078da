"""``pipeline compact``: the bronze of closed days in few files, without anybody noticing.

What is new is complete before it gets its name, and says what it replaces: from then on our readers see it, and no
longer the old. Whoever has listed the old files already finds them gone and looks again (``bronze.undisturbed``).
"""

from __future__ import annotations

import functools
import uuid
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.bronze import COMPACT, PLACE, REPLACES, Bronze, Part
from pipeline.checkpoint import Checkpoint
from pipeline.errors import JobError
from pipeline.progress import report
from pipeline.schemas import BRONZE
from pipeline.session import build_session

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import SparkSession

    from pipeline.settings import CompactSettings

_FILE_BYTES = 128 * 1024 * 1024  # of a compacted file, about
_UNDER_WAY = "_compacting-"  # begins the name of what is not complete yet


def run(settings: CompactSettings) -> int:
    """Compact the days before ``settings.before``; JobError if what was written is not what was read."""
    spark = build_session(f"compact {settings.job}", master=settings.master, table_format=settings.table_format)
    folders = compact(spark, settings)
    report("compacted", job=settings.job, before=settings.before, folders=folders)
    return 0


def compact(spark: SparkSession, settings: CompactSettings) -> int:
    """The same in a session that is there; returns how many folders became one."""
    bronze = Bronze(spark, settings)
    if settings.table_format == "delta":
        if bronze.exists():
            spark.sql(f"OPTIMIZE delta.`{bronze.path}`")
        return 0
    _tidy(bronze)
    closed = _closed(spark, bronze, settings.before)
    if len(closed) < 2:  # noqa: PLR2004 - one folder is as few as it gets
        return 0
    _merge(spark, bronze, closed)
    _tidy(bronze)
    return len(closed)


def _tidy(bronze: Bronze) -> None:
    """Remove what is replaced, and what a killed compaction has left."""
    for uri in bronze.replaced():
        bronze.files.delete(uri)
    for uri in bronze.files.glob(f"{bronze.path}/{_UNDER_WAY}*"):
        bronze.files.delete(uri)


def _closed(spark: SparkSession, bronze: Bronze, before: dt.date) -> list[Part]:
    """The folders with records of closed days only, that nobody will write again."""
    parts = [part for part in bronze.parts() if not part.life.startswith(COMPACT)]
    if not parts:
        return []
    place = F.regexp_extract("_metadata.file_path", r"life=([^/]+/batch=\d+)/", 1)
    newest = (
        spark.read.schema(BRONZE)
        .parquet(*(part.uri for part in parts))
        .groupBy(place.alias("place"))
        .agg(F.max("date").alias("newest"))
    )
    still_open = {row.place for row in newest.where(F.col("newest") >= F.lit(before)).collect()}
    final = functools.partial(_is_final, bronze, bronze.lives())
    return [part for part in parts if f"{part.life}/batch={part.batch}" not in still_open and final(part)]


def _is_final(bronze: Bronze, lives: dict[str, dict[str, str]], part: Part) -> bool:
    """Whether its checkpoint is past it. One that is no more writes nothing again."""
    if part.life not in lives:
        return False
    checkpoint = Checkpoint(bronze.files, lives[part.life]["checkpoint"])
    return checkpoint.life() != part.life or checkpoint.is_final(part.batch)


def _merge(spark: SparkSession, bronze: Bronze, parts: list[Part]) -> None:
    life = f"{COMPACT}{uuid.uuid4().hex}"
    draft = f"{bronze.path}/{_UNDER_WAY}{uuid.uuid4().hex}"
    rows = spark.read.schema(BRONZE).parquet(*(part.uri for part in parts))
    files = 1 + sum(bronze.files.size(part.uri) for part in parts) // _FILE_BYTES
    # In the order of the topics, as they were: like stands beside like, and a search by offset skips most of it.
    rows.repartitionByRange(files, *PLACE).sortWithinPartitions(*PLACE).write.parquet(f"{draft}/batch=0")
    expected, written = rows.count(), spark.read.parquet(f"{draft}/batch=0").count()
    if expected != written:
        raise JobError(f"{written} rows were written instead of {expected}: the old files stay as they are")
    bronze.files.write_json(f"{draft}/{REPLACES}", {"life": life, "replaces": [part.name for part in parts]})
    bronze.files.rename(draft, f"{bronze.path}/life={life}")
