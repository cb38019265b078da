"""``pipeline plan``: turn a table of work into the manifest, written once. Audits compare the answers with it."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.lake.manifest import METADATA, Manifest, digests_of, recorded_manifest, run_of
from pipeline.lake.schemas import MANIFEST
from pipeline.lake.sources import as_work, is_small, read_source
from pipeline.lake.tables import local_dataframe, publish_table, replace_table, scratch
from pipeline.messages.keys import LARGEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

    from pipeline.settings import Common, Source

_SHARD_BITS = 33  # monotonically_increasing_id counts the rows of a partition in the bits below
_PART_ROWS = 50_000  # rows of a part by default: about a second of work, so that many tasks share it
_MOST_PARTS = 64  # parts, unless each would then be larger than
_LARGEST_PART = 1_000_000  # rows: a task sorts a whole part, payloads included
_SHOWN = 3  # ids named in an error


class Planned(NamedTuple):
    """The result of ``plan``."""

    manifest: Manifest
    created: bool


def plan(
    spark: SparkSession, settings: Common, source: Source, *, write: bool = True, new_run: bool = False
) -> Planned:
    """Plan the job. Planning the same table again changes nothing.

    Raise JobError for another table under the same name. With ``new_run``, the table replaces the manifest instead.
    Without ``write``, write nothing.
    """
    with scratch(spark, settings.table("manifest").folder) as folder:
        # Writing the table fixes its order. Sorted twice, its rows may fall into other partitions.
        ordered = _ordered(as_work(read_source(spark, source), source), in_one_task=is_small(source))
        ordered.write.parquet(folder)
        staged = spark.read.schema(ordered.schema).parquet(folder)
        shards = _shards(staged)
        rows = _checked(staged, shards)
        parts = source.parts or default_parts(rows)
        table = numbered(staged, _starts(shards), rows, parts)
        digest, key_digest = digests_of(table)
        columns, run = _columns(source), run_of(digest)
        made = Manifest(settings.job, rows, digest, parts, columns, _now(), run, key_digest=key_digest)
        return _write_once(spark, settings, table, made, write=write, new_run=new_run)


def _write_once(
    spark: SparkSession, settings: Common, table: DataFrame, made: Manifest, *, write: bool, new_run: bool
) -> Planned:
    existing = recorded_manifest(spark, settings)
    if existing is None:
        if write:
            publish_table(table, settings.table("manifest"), {METADATA: made._asdict()})
        return Planned(made, created=True)
    if (existing.rows, existing.digest) == (made.rows, made.digest):
        return Planned(existing, created=False)
    if not new_run:
        raise JobError(
            f"job {settings.job!r} was planned on {existing.created} with other data: run "
            f"{existing.run or '(unnamed)'} of {existing.rows} rows then, run {made.run} of {made.rows} rows now. "
            "Give this table another --job, or begin a new run of the job with --new-run"
        )
    made = made._replace(replaces=(*existing.replaces, existing.run))
    if write:
        replace_table(table, settings.table("manifest"), {METADATA: made._asdict()})
    return Planned(made, created=True)


def default_parts(rows: int) -> int:
    """Return the default number of parts of a submit."""
    return max(1, min(_MOST_PARTS, -(-rows // _PART_ROWS)), -(-rows // _LARGEST_PART))


def _columns(source: Source) -> dict[str, str | None]:
    return {"id": source.id, "payload": source.payload, "deadline": source.deadline}


def _now() -> str:
    return dt.datetime.now(dt.UTC).isoformat(timespec="seconds")


# ---------------------------------------------------------------- checks


def _shards(staged: DataFrame) -> list[Row]:
    """Return, for each shard in order, its number of rows, and how many of them lack an id or a payload."""
    counted = staged.groupBy("shard").agg(
        F.count(F.lit(1)).alias("rows"),
        F.count_if(F.col("source_id").isNull()).alias("without_id"),
        F.count_if(F.col("payload").isNull()).alias("without_payload"),
    )
    return sorted(counted.collect(), key=lambda row: int(row.shard))


def _checked(staged: DataFrame, shards: list[Row]) -> int:
    """Return the number of rows. Raise JobError if they cannot be planned."""
    totals = [sum(int(shard[name]) for shard in shards) for name in ("rows", "without_id", "without_payload")]
    rows, ids, payloads = totals
    if not rows:
        raise JobError("the input has no rows: there is nothing to plan")
    if ids:
        raise JobError(f"{ids} of {rows} rows have no id: every row needs one")
    if payloads:
        raise JobError(f"{payloads} of {rows} rows have no payload: every row needs one, which may be empty")
    if rows > LARGEST + 1:
        raise JobError(f"the input has {rows} rows, and a job can have {LARGEST + 1}: split it")
    _check_unique(staged)
    return rows


def _check_unique(staged: DataFrame) -> None:
    doubled = staged.groupBy("source_id").count().where(F.col("count") > 1)
    found = doubled.orderBy("source_id").limit(_SHOWN + 1).collect()
    if found:
        more = " and others" if len(found) > _SHOWN else ""
        ids = ", ".join(repr(row.source_id) for row in found[:_SHOWN])
        raise JobError(f"ids must be unique, and these are not: {ids}{more}")


# ---------------------------------------------------------------- numbers


def _ordered(work: DataFrame, *, in_one_task: bool) -> DataFrame:
    """Return the rows sorted by id over all partitions, each with its partition and its position in it."""
    order = [F.col(name).asc_nulls_last() for name in ("rank", "id")]
    place = F.monotonically_increasing_id()
    return (
        (work.coalesce(1) if in_one_task else work.repartitionByRange(*order))
        .sortWithinPartitions(*order)
        .select(
            F.shiftright(place, _SHARD_BITS).cast("int").alias("shard"),
            place.bitwiseAND(F.lit((1 << _SHARD_BITS) - 1)).alias("place"),
            "source_id",
            "payload",
            "deadline",
        )
    )


def _starts(shards: list[Row]) -> dict[int, int]:
    """Return the first sequence of each shard."""
    ends = itertools.accumulate(shard["rows"] for shard in shards)
    return {shard["shard"]: end - shard["rows"] for shard, end in zip(shards, ends, strict=True)}


def numbered(staged: DataFrame, starts: dict[int, int], rows: int, parts: int) -> DataFrame:
    """Return the manifest: dense sequences in the order of the shards, cut into parts of about the same size."""
    first = local_dataframe(staged.sparkSession, starts.items(), "shard int, first long")
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
