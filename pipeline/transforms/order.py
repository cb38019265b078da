"""Whether answers stand in the order of their requests, judged by the requests' offsets.

Not by their sequences: several tasks submit side by side, and their requests interleave.

A stream is the answers on one partition to the requests of one partition. It is looked at in stretches of 32 offsets,
which tell by a few sums whether they are in order; only those that are not, or that begin before an earlier one ends,
are sorted. How many answers there were at what time comes from the same look.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STREAM = ["origin_topic", "origin_partition", "partition"]
_SHIFT = 5  # of an offset to its stretch
_LAST = 31  # place of a stretch
# The requests' offsets are known by the bits of a long: among so many there is room for the gaps that the markers of
# transactions leave, or requests that were answered on other partitions.
_BITS = 63
_LOW = 0xFFFF  # the part of a request's offset that is multiplied: no sum of products overflows
_TOTAL = sum(range(_LAST + 1))
_SQUARES = sum(place * place for place in range(_LAST + 1))


def stretches(claims: DataFrame, step: int) -> DataFrame:
    """For each stretch, outcome and ``step`` seconds: the number of ``answers``, and what ``suspects`` needs."""
    seconds = F.unix_seconds("timestamp")
    return claims.groupBy(*STREAM, _stretch(), "outcome", (seconds - F.pmod(seconds, F.lit(step))).alias("begin")).agg(
        F.count(F.lit(1)).alias("answers"),
        F.bit_or(_bit(F.col("offset").bitwiseAND(_LAST))).alias("places"),
        F.bit_or(_bit(F.col("origin_offset").bitwiseAND(_BITS))).alias("requests"),
        F.min("origin_offset").alias("least"),
        F.max("origin_offset").alias("greatest"),
        F.sum(F.col("offset").bitwiseAND(_LAST) * F.col("origin_offset").bitwiseAND(_LOW)).alias("products"),
    )


def _stretch() -> Column:
    return F.shiftright("offset", _SHIFT).alias("stretch")


def _bit(number: Column) -> Column:
    return F.call_function("shiftleft", F.lit(1).cast("long"), number.cast("int"))


def suspects(looked_at: DataFrame) -> DataFrame:
    """Of ``stretches``: those that may hold answers out of order, with the greatest offset of a request ``before`` them
    in their stream. No other stretch holds any.
    """
    earlier = Window.partitionBy(*STREAM).orderBy("stretch").rowsBetween(Window.unboundedPreceding, -1)
    return (
        looked_at.where(F.col("least").isNotNull())
        .groupBy(*STREAM, "stretch")
        .agg(
            *(F.sum(name).alias(name) for name in ("answers", "products")),
            *(F.bit_or(name).alias(name) for name in ("places", "requests")),
            F.min("least").alias("least"),
            F.max("greatest").alias("greatest"),
        )
        .withColumn("before", F.max("greatest").over(earlier))
        .where(~_in_order() | (F.col("least") < F.col("before")))
        .select(*STREAM, "stretch", "before")
    )


def _in_order() -> Column:
    """Whether a stretch is certainly in order.

    Where all of its offsets differ, and those of the requests differ and lie within 64, the bits say which they are.
    The sum of the products of two sets of numbers, paired off, is greatest where both rise together, and only there.
    """
    span = F.try_subtract("greatest", "least")
    known = (
        (F.col("answers") == F.bit_count("places"))
        & (F.col("answers") == F.bit_count("requests"))
        & (span <= _BITS)
        & (F.shiftright("greatest", 16) == F.shiftright("least", 16))
    )
    low = F.col("least").bitwiseAND(_LOW)
    # Most stretches are full, and their sum needs no look at the bits.
    full = (F.col("answers") == _LAST + 1) & (span == _LAST)
    places = _set_bits("places", _LAST, F.lit(0))
    requests = _set_bits("requests", _BITS, F.col("least").bitwiseAND(_BITS).cast("int"))
    products = F.zip_with(places, requests, lambda place, request: place * (low + request))
    greatest = F.when(full, low * _TOTAL + _SQUARES).otherwise(
        F.aggregate(products, F.lit(0).cast("long"), operator.add)
    )
    return F.coalesce(F.when(known, F.col("products") == greatest), F.lit(False))  # noqa: FBT003 - a value


def _set_bits(bits: str, last: int, first: Column) -> Column:
    """The numbers from 0 to ``last`` whose bits are set, counted on from bit ``first``."""
    numbers = F.array(*(F.lit(number) for number in range(last + 1)))
    return F.filter(numbers, lambda number: F.getbit(bits, (number + first).bitwiseAND(_BITS)) == 1)


def out_of_order(claims: DataFrame, suspected: DataFrame) -> DataFrame:
    """The answers that stand behind the answer to a later request of the same partition, with that request's offset."""
    stretch = [*STREAM, "stretch"]
    earlier = Window.partitionBy(*stretch).orderBy("offset").rowsBetween(Window.unboundedPreceding, -1)
    return (
        claims.where(F.col("origin_offset").isNotNull())
        .select(*STREAM, "origin_offset", "offset", _stretch())
        .join(suspected, on=stretch, how="inner")
        .withColumn("behind_offset", F.greatest("before", F.max("origin_offset").over(earlier)))
        .where(F.col("origin_offset") < F.col("behind_offset"))
        .select(*STREAM, "origin_offset", "offset", "behind_offset")
    )
