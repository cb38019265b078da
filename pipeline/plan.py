"""``pipeline plan``: a table of work becomes the manifest, written once, against which everything is proved."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.files import Files
from pipeline.keys import LARGEST
from pipeline.progress import report
from pipeline.schemas import MANIFEST
from pipeline.session import build_session
from pipeline.sources import as_work, read_source
from pipeline.table_io import publish_table, scratch, table_exists, table_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import Common, PlanSettings, Source

NOTE = "_manifest.json"
_SHARD_BITS = 33  # below them monotonically_increasing_id counts the rows of one partition
_PART_ROWS = 50_000  # of a part by default: a second or so of work, so that many tasks share it
_MOST_PARTS = 64
_SHOWN = 3  # ids named in a complaint


class Manifest(NamedTuple):
    """What is noted beside a manifest. ``digest`` is of all its rows, in whatever order they stand in the files."""

    job: str
    rows: int
    digest: str
    parts: int
    columns: dict[str, str | None]
    created: str


def run(settings: PlanSettings) -> None:
    """Plan the job, or find that it is planned already with the same rows. JobError if the table is not fit."""
    spark = build_session(f"plan {settings.job}", master=settings.master, table_format=settings.table_format)
    noted, made = plan(spark, settings, settings.source)
    report("planned", job=noted.job, rows=noted.rows, parts=noted.parts, new=made, manifest=settings.manifest)


def plan(spark: SparkSession, settings: Common, source: Source, *, write: bool = True) -> tuple[Manifest, bool]:
    """The manifest's note, and whether it is new. Without ``write`` nothing is made, only what it would be is said."""
    with scratch(spark, settings.manifest) as folder:
        # The order is fixed by writing it down: sorted twice, a table may fall into other partitions.
        _staged(as_work(read_source(spark, source), source)).write.parquet(folder)
        staged = spark.read.parquet(folder)
        rows = _checked(staged)
        parts = source.parts or max(1, min(_MOST_PARTS, -(-rows // _PART_ROWS)))
        table = numbered(staged, shard_starts(staged), rows, parts)
        noted = Manifest(settings.job, rows, digest_of(table), parts, _columns(source), _now())
        return _write_once(spark, settings, table, noted, write=write)


def noted_manifest(spark: SparkSession, settings: Common) -> Manifest | None:
    """What is noted beside the job's manifest, or None if the job is not planned."""
    if not table_exists(spark, settings.manifest, settings.table_format):
        return None
    return Manifest(**Files(spark).read_json(f"{settings.manifest}/{NOTE}"))


def _write_once(
    spark: SparkSession, settings: Common, table: DataFrame, noted: Manifest, *, write: bool
) -> tuple[Manifest, bool]:
    there = noted_manifest(spark, settings)
    if there is None:
        if write:
            publish_table(table, settings.manifest, settings.table_format, {NOTE: noted._asdict()})
        return noted, True
    if (there.rows, there.digest) != (noted.rows, noted.digest):
        raise JobError(
            f"job {settings.job!r} was planned on {there.created} with other rows ({there.rows} then, {noted.rows} "
            "now): a job is planned once, give this table another --job"
        )
    return there, False


def _columns(source: Source) -> dict[str, str | None]:
    return {"id": source.id, "payload": source.payload, "deadline": source.deadline}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


# ---------------------------------------------------------------- checks


def _checked(staged: DataFrame) -> int:
    """The number of rows, if they can be planned."""
    counted: Any = staged.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col("source_id").isNull()).alias("ids"),
        F.count_if(F.col("payload").isNull()).alias("payloads"),
    ).first()
    if not counted.rows:
        raise JobError("the input has no rows: there is nothing to plan")
    if counted.ids:
        raise JobError(f"{counted.ids} of {counted.rows} rows have no id: every row needs one")
    if counted.payloads:
        raise JobError(f"{counted.payloads} of {counted.rows} rows have no payload: every row needs one, if empty")
    if counted.rows > LARGEST + 1:
        raise JobError(f"the input has {counted.rows} rows, and a job can have {LARGEST + 1}: split it")
    _check_unique(staged)
    return int(counted.rows)


def _check_unique(staged: DataFrame) -> None:
    doubled = staged.groupBy("source_id").count().where(F.col("count") > 1)
    found = doubled.orderBy("source_id").limit(_SHOWN + 1).collect()
    if found:
        more = " and others" if len(found) > _SHOWN else ""
        ids = ", ".join(repr(row.source_id) for row in found[:_SHOWN])
        raise JobError(f"ids must be unique, and these are not: {ids}{more}")


# ---------------------------------------------------------------- numbers


def _staged(work: DataFrame) -> DataFrame:
    """The rows sorted by id over all partitions, each with its partition and its place in there."""
    order = ["rank", "id"]
    place = F.monotonically_increasing_id()
    return (
        work.repartitionByRange(*[F.col(name).asc_nulls_last() for name in order])
        .sortWithinPartitions(*[F.col(name).asc_nulls_last() for name in order])
        .select(
            F.shiftright(place, _SHARD_BITS).cast("int").alias("shard"),
            place.bitwiseAND(F.lit((1 << _SHARD_BITS) - 1)).alias("place"),
            "source_id",
            "payload",
            "deadline",
        )
    )


def shard_starts(staged: DataFrame) -> dict[int, int]:
    """The sequence with which each shard begins."""
    starts, start = {}, 0
    for row in staged.groupBy("shard").agg(F.count(F.lit(1)).alias("rows")).orderBy("shard").collect():
        starts[row.shard] = start
        start += row.rows
    return starts


def numbered(staged: DataFrame, starts: dict[int, int], rows: int, parts: int) -> DataFrame:
    """The manifest: dense sequences in the order of the shards, cut into parts of about the same size."""
    first = table_of(staged.sparkSession, starts.items(), "shard int, first long")
    sequence = (F.col("first") + F.col("place")).cast("int")
    return (
        staged.join(F.broadcast(first), on="shard", how="inner")
        .withColumn("sequence", sequence)
        .select(
            "sequence",
            "source_id",
            "payload",
            F.sha2("payload", 256).alias("digest"),
            F.floor(F.col("sequence").cast("long") * parts / F.lit(rows)).cast("int").alias("part"),
            "deadline",
        )
        .to(MANIFEST)
    )


def digest_of(manifest: DataFrame) -> str:
    """The same for the same rows in any order, and another for others: the sum of a hash of each row."""
    row = F.xxhash64("sequence", "source_id", "payload", "deadline").cast("decimal(20,0)")
    summed: Any = manifest.agg(F.sum(row).alias("digest")).first()
    return f"{int(summed.digest) % 2**64:016x}"
