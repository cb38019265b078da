"""A check that answers stand in the order of their requests' offsets.

Sequences do not give the order: several tasks submit in parallel, and their requests interleave.

A stream is the answers on one partition to the requests of one partition. It is divided into stretches of 32 offsets,
and a few sums show whether a stretch is in order. Only stretches that are not, or that begin before an earlier one
ends, are sorted. The same pass counts the answers over time.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING

from pyspark.sql import Window
from pyspark.sql import functions as F  # noqa: N812 - its customary name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

STREAM = ["origin_topic", "origin_partition", "partition"]
_SHIFT = 5  # from an offset to its stretch
_LAST = 31  # position in a stretch
# The requests' offsets are represented by the bits of a long. Its 63 bits leave room for the gaps of transaction
# markers and of requests that were answered on other partitions.
_BITS = 63
_LOW = 0xFFFF  # the part of a request's offset that is multiplied, so that no sum of products overflows
_TOTAL = sum(range(_LAST + 1))
_SQUARES = sum(place * place for place in range(_LAST + 1))


def stretches(claims: DataFrame, step: int) -> DataFrame:
    """Return, for each stretch, outcome and step of ``step`` seconds, the ``answers`` and the sums for ``suspects``."""
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
    """Return the stretches that may hold answers out of order. All other stretches are in order.

    ``before`` is the greatest request offset before the stretch in its stream.
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
    """Return whether a stretch is certainly in order.

    If all of its offsets differ, and those of the requests differ and lie within 64, the bits identify them. The sum of
    the products of two paired sets of numbers is greatest exactly if both rise together.
    """
    span = F.try_subtract("greatest", "least")
    known = (
        (F.col("answers") == F.bit_count("places"))
        & (F.col("answers") == F.bit_count("requests"))
        & (span <= _BITS)
        & (F.shiftright("greatest", 16) == F.shiftright("least", 16))
    )
    low = F.col("least").bitwiseAND(_LOW)
    # Most stretches are full, and their sum does not need the bits.
    full = (F.col("answers") == _LAST + 1) & (span == _LAST)
    places = _set_bits("places", _LAST, F.lit(0))
    requests = _set_bits("requests", _BITS, F.col("least").bitwiseAND(_BITS).cast("int"))
    products = F.zip_with(places, requests, lambda place, request: place * (low + request))
    greatest = F.when(full, low * _TOTAL + _SQUARES).otherwise(
        F.aggregate(products, F.lit(0).cast("long"), operator.add)
    )
    return F.coalesce(F.when(known, F.col("products") == greatest), F.lit(False))  # noqa: FBT003 - a value


def _set_bits(bits: str, last: int, first: Column) -> Column:
    """Return the numbers from 0 to ``last`` whose bits are set, counting from bit ``first``."""
    numbers = F.array(*(F.lit(number) for number in range(last + 1)))
    return F.filter(numbers, lambda number: F.getbit(bits, (number + first).bitwiseAND(_BITS)) == 1)


def out_of_order(claims: DataFrame, suspected: DataFrame) -> DataFrame:
    """Return the answers behind the answer to a later request of the same partition, with that request's offset."""
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
