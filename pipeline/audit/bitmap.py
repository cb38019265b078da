"""An exact comparison of requests with answers without joining all of them: 64 numbers are the bits of one word.

If a word has as many answers as bits, no number is claimed twice. If two words are equal, both have the same numbers.
Only words that differ are examined further: their bits give the missing and stray numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_WORD = ["space", "word"]
_REQUEST = ["space", "number"]
_SHIFT = 6  # from a number to its word of 64 bits
_MASK = 63


def words(numbered: DataFrame) -> DataFrame:
    """Return, for each word, the number of ``rows`` and their numbers as ``bits``.

    The aggregates are longs, so Spark hashes instead of sorting. Most rows of a word stand together.
    """
    bit = F.call_function("shiftleft", F.lit(1).cast("long"), F.col("number").bitwiseAND(_MASK).cast("int"))
    return numbered.groupBy("space", _word()).agg(F.count(F.lit(1)).alias("rows"), F.bit_or(bit).alias("bits"))


def _word() -> Column:
    return F.shiftright("number", _SHIFT).alias("word")


def compared(requests: DataFrame, claims: DataFrame) -> DataFrame:
    """Return, for each word of ``requests`` or ``claims``, the counts of each and where the two differ.

    ``missing`` and ``stray`` are bits. ``doubled`` means that a number is claimed more than once, and ``repeated`` that
    one is requested more than once.
    """
    planned, answered = _named(words(requests), "planned"), _named(words(claims), "answered")
    nothing = F.lit(0).cast("long")
    either = {name: F.coalesce(name, nothing) for name in ("planned", "planned_bits", "answered", "answered_bits")}
    return (
        planned.join(answered, on=_WORD, how="full")
        .withColumns(either)
        .select(
            *_WORD,
            "planned",
            "answered",
            F.col("planned_bits").bitwiseAND(F.bitwise_not("answered_bits")).alias("missing"),
            F.col("answered_bits").bitwiseAND(F.bitwise_not("planned_bits")).alias("stray"),
            (F.col("answered") != F.bit_count("answered_bits")).alias("doubled"),
            (F.col("planned") != F.bit_count("planned_bits")).alias("repeated"),
        )
    )


def _named(counted: DataFrame, side: str) -> DataFrame:
    return counted.select(*_WORD, F.col("rows").alias(side), F.col("bits").alias(f"{side}_bits"))


def totals(compared_words: DataFrame) -> DataFrame:
    """Return one row with totals.

    ``planned``, ``missing`` and ``stray`` count numbers. ``doubled`` and ``repeated`` count words with those, and
    ``odd`` counts words with doubled or stray numbers.
    """
    return compared_words.agg(
        F.coalesce(F.sum("planned"), F.lit(0)).alias("planned"),
        F.coalesce(F.sum(F.bit_count("missing")), F.lit(0)).alias("missing"),
        F.coalesce(F.sum(F.bit_count("stray")), F.lit(0)).alias("stray"),
        F.count_if("doubled").alias("doubled"),
        F.count_if("repeated").alias("repeated"),
        F.count_if(odd()).alias("odd"),
    )


def odd() -> Column:
    """Return whether a word has doubled or stray numbers."""
    return F.col("doubled") | (F.col("stray") != 0)


def numbers_of(compared_words: DataFrame, bits: str) -> DataFrame:
    """Return the numbers whose bits are set in ``missing`` or ``stray``."""
    place = F.explode(F.sequence(F.lit(0), F.lit(_MASK)))
    return (
        compared_words.where(F.col(bits) != 0)
        .withColumn("place", place)
        .where(F.getbit(bits, "place") == 1)
        .select("space", (F.shiftleft("word", _SHIFT) + F.col("place")).alias("number"))
    )


def marked(claims: DataFrame, some_words: DataFrame) -> DataFrame:
    """Return claims with ``marked``: whether their numbers are in these words."""
    named = some_words.select(*_WORD, F.lit(True).alias("marked"))  # noqa: FBT003 - a column's value
    found = claims.withColumn("word", _word()).join(named, on=_WORD, how="left").drop("word")
    return found.withColumn("marked", F.coalesce("marked", F.lit(False)))  # noqa: FBT003


def claimed_again(claims: DataFrame) -> DataFrame:
    """Return the numbers that are claimed more than once."""
    counted = claims.groupBy(*_REQUEST).agg(F.count(F.lit(1)).alias("answers"))
    return counted.where(F.col("answers") > 1).select(*_REQUEST)


def claims_of(claims: DataFrame, numbers: DataFrame) -> DataFrame:
    """Return the claims to these numbers."""
    return claims.join(numbers.select(*_REQUEST), on=_REQUEST, how="left_semi")
