"""Several answers to one request: duplicates, or a dead letter that was replayed and answered again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit.attribution import DEAD_LETTERED
from pipeline.messages.dead_letters import REPLAY_HEADER
from worker.headers import REPLAYED_FROM

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REQUEST = ["space", "number"]
_ORIGIN = ["origin_topic", "origin_partition", "origin_offset"]
_PLACE = ["topic", "partition", "offset"]


def with_plain(claims: DataFrame, requests: DataFrame | None) -> DataFrame:
    """Return the claims with facts about each answer's request.

    ``plain``: it has no replay header, neither of ``pipeline replay`` nor of ``worker dlq replay``. ``known``: its
    record is in the request topic. ``requests`` are the records of the request topics that still exist.
    """
    no = F.lit(False)  # noqa: FBT003 - a column's value
    if requests is None:
        return claims.withColumns({"plain": no, "known": no})
    headers = F.coalesce("headers", F.array())
    unmarked = ~F.exists(headers, lambda header: header["key"].isin(REPLAY_HEADER, REPLAYED_FROM))
    records = requests.select(
        *(F.col(column).alias(name) for name, column in zip(_ORIGIN, ("topic", "partition", "offset"), strict=True)),
        unmarked.alias("plain"),
        F.lit(True).alias("known"),  # noqa: FBT003
    )
    joined = claims.join(records, on=_ORIGIN, how="left")
    return joined.withColumns({"plain": F.coalesce("plain", no), "known": F.coalesce("known", no)})


def ranked(claims: DataFrame) -> DataFrame:
    """Return each answer with its ``place`` among those of its request: ``first``, ``superseded`` or ``surplus``.

    An answer to another record of the same request supersedes a dead-lettered answer, because a replay makes such a
    record. It does not if that record is ``plain`` and thus no replay. Each record of a request may have one answer;
    further ones are surplus.
    """
    request = Window.partitionBy(*_REQUEST)
    whole = request.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    by_place = request.orderBy(*_PLACE).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    by_record = Window.partitionBy(*_REQUEST, "_origin").orderBy(*_PLACE)
    # The record of the request topic whose first answer came last counts. Repeated answers to a record do not.
    new = F.when(F.col("_again") == 1, F.struct(*_PLACE))
    superseded = (F.col("outcome") == DEAD_LETTERED) & (F.col("_origin") != F.col("_final")) & ~F.col("_plain")
    again = F.col("_again") > 1
    return (
        claims.withColumn("_origin", F.struct(*_ORIGIN))
        .withColumn("_again", F.row_number().over(by_record.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .withColumn("_final", F.max_by("_origin", new).over(whole))
        .withColumn("_plain", F.max_by("plain", new).over(whole))
        .withColumn("unproven", ~F.max_by("known", new).over(whole))
        .withColumn("_superseded", F.coalesce(superseded, F.lit(False)))  # noqa: FBT003 - a column's value
        .withColumn("_standing", F.sum(F.when(~F.col("_superseded"), 1).otherwise(0)).over(by_place))
        .withColumn(
            "place",
            F.when(F.col("_superseded"), F.when(again, "surplus").otherwise("superseded"))
            .when(F.col("_standing") == 1, "first")
            .otherwise("surplus"),
        )
        .drop("plain", "known", "_origin", "_final", "_plain", "_superseded", "_again", "_standing")
    )


def verdicts(ranked_claims: DataFrame) -> DataFrame:
    """Return, for each request, how many answers are ``surplus``, and whether a replay's answer ``superseded`` one.

    ``unproven``: the superseding answer's request is deleted, so that it cannot be shown to be a replay.
    """
    return ranked_claims.groupBy(*_REQUEST).agg(
        F.count_if(F.col("place") == "surplus").alias("surplus"),
        (F.count_if(F.col("place") == "superseded") > 0).alias("replayed"),
        (F.count_if((F.col("place") == "superseded") & F.col("unproven")) > 0).alias("unproven"),
    )
