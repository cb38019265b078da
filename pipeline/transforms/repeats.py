"""Several answers to one request: a duplicate, or a dead letter that was replayed and answered again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.letters import REPLAY_HEADER
from pipeline.transforms.claims import DEAD_LETTERED

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REQUEST = ["space", "number"]
_ORIGIN = ["origin_topic", "origin_partition", "origin_offset"]
_PLACE = ["partition", "offset"]


def with_plain(claims: DataFrame, requests: DataFrame | None) -> DataFrame:
    """Whether each answer's request is known to be ``plain``: there, and without the header of a replay.

    ``requests`` are the records of the request topics, as far as they still stand.
    """
    if requests is None:
        return claims.withColumn("plain", F.lit(False))  # noqa: FBT003 - a column's value
    unmarked = ~F.exists(F.coalesce("headers", F.array()), lambda header: header["key"] == REPLAY_HEADER)
    plain = requests.where(unmarked).select(
        *(F.col(column).alias(name) for name, column in zip(_ORIGIN, ("topic", "partition", "offset"), strict=True)),
        F.lit(True).alias("plain"),  # noqa: FBT003
    )
    known = claims.join(plain, on=_ORIGIN, how="left")
    return known.withColumn("plain", F.coalesce("plain", F.lit(False)))  # noqa: FBT003


def ranked(claims: DataFrame) -> DataFrame:
    """Each answer with its ``place`` among those of its request: ``first``, ``superseded`` or ``surplus``.

    A dead-lettered answer is superseded by one to another record of the same request, which is what a replay makes;
    not if that record is ``plain``, known not to be a replay. Each record of a request may be answered once: what is
    more is surplus.
    """
    request = Window.partitionBy(*_REQUEST)
    whole = request.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    by_place = request.orderBy(*_PLACE).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    by_record = Window.partitionBy(*_REQUEST, "_origin").orderBy(*_PLACE)
    # The record of the request topic that was answered last is the one that counts; what is answered again is not.
    new = F.when(F.col("_again") == 1, F.struct(*_PLACE))
    superseded = (F.col("outcome") == DEAD_LETTERED) & (F.col("_origin") != F.col("_final")) & ~F.col("_plain")
    again = F.col("_again") > 1
    return (
        claims.withColumn("_origin", F.struct(*_ORIGIN))
        .withColumn("_again", F.row_number().over(by_record.rowsBetween(Window.unboundedPreceding, Window.currentRow)))
        .withColumn("_final", F.max_by("_origin", new).over(whole))
        .withColumn("_plain", F.max_by("plain", new).over(whole))
        .withColumn("_superseded", F.coalesce(superseded, F.lit(False)))  # noqa: FBT003 - a column's value
        .withColumn("_standing", F.sum(F.when(~F.col("_superseded"), 1).otherwise(0)).over(by_place))
        .withColumn(
            "place",
            F.when(F.col("_superseded"), F.when(again, "surplus").otherwise("superseded"))
            .when(F.col("_standing") == 1, "first")
            .otherwise("surplus"),
        )
        .drop("plain", "_origin", "_final", "_plain", "_superseded", "_again", "_standing")
    )


def verdicts(ranked_claims: DataFrame) -> DataFrame:
    """For each request: how many answers are ``surplus``, and whether any was ``superseded`` by a replay's."""
    return ranked_claims.groupBy(*_REQUEST).agg(
        F.count_if(F.col("place") == "surplus").alias("surplus"),
        (F.count_if(F.col("place") == "superseded") > 0).alias("replayed"),
    )
