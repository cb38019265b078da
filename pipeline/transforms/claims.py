"""What each committed answer claims to answer.

A request is known by a ``space`` and a ``number`` in it. With a manifest there is one space, and the number is the
request's sequence, which stands in the record's key. Without one, each partition of the request topic is a space, and
the number is the request's offset: what the answer gives as its origin.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.schemas import ANSWER, DEAD_LETTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

ONE_SPACE = ""  # of the requests of a manifest
DEAD_LETTERED = "DEAD_LETTERED"
# Why an answer claims no planned request.
NO_KEY = "its key names no request"
OTHER_JOB = "its key names another job"
NOT_PLANNED = "its request is not planned"
SEQUENCE_DIFFERS = "its sequence is not that of its key"
NO_ORIGIN = "it names no origin"
OTHER_TOPIC = "its origin is in another topic"


def answers(bronze: DataFrame) -> DataFrame:
    """The records of the ack topic that could be decoded."""
    return bronze.where((F.col("kind") == ANSWER) & F.col("decode_error").isNull())


def undecodable(bronze: DataFrame) -> DataFrame:
    """The records of the ack topic that are no answers."""
    return bronze.where((F.col("kind") == ANSWER) & F.col("decode_error").isNotNull())


def dead_letters(bronze: DataFrame) -> DataFrame:
    """The records of the dead-letter topic."""
    return bronze.where(F.col("kind") == DEAD_LETTER)


def of_other_jobs(bronze: DataFrame, jobs: Sequence[str]) -> DataFrame:
    """The records of jobs that are known: what is right with them is for their own audit to say."""
    return bronze.where(F.col("job").isin(*jobs)) if jobs else bronze.limit(0)


def without_other_jobs(bronze: DataFrame, jobs: Sequence[str]) -> DataFrame:
    """The records that are of none of these jobs."""
    return bronze.where(F.col("job").isNull() | ~F.col("job").isin(*jobs)) if jobs else bronze


def by_sequence(decoded: DataFrame, job: str, rows: int) -> DataFrame:
    """Each answer with ``space``, ``number`` and, where it claims none of the job's ``rows`` requests, a ``reason``."""
    planned = F.col("request_sequence") < rows  # what the codec takes for a sequence is never negative
    # A request that nobody could read has no sequence, and its answer says 0.
    differs = (F.col("sequence") != F.col("request_sequence")) & (F.col("outcome") != DEAD_LETTERED)
    reason = (
        F.when(F.col("job").isNull(), NO_KEY)
        .when(F.col("job") != job, OTHER_JOB)
        .when(~planned, NOT_PLANNED)
        .when(differs, SEQUENCE_DIFFERS)
    )
    return _claiming(decoded, F.lit(ONE_SPACE), F.col("request_sequence"), reason)


def by_origin(decoded: DataFrame, topics: Sequence[str]) -> DataFrame:
    """The same where the requests are the records of ``topics``. A request that is not there shows in comparison."""
    reason = F.when(F.col("origin_topic").isNull(), NO_ORIGIN).when(~F.col("origin_topic").isin(*topics), OTHER_TOPIC)
    return _claiming(decoded, space_of("origin_topic", "origin_partition"), F.col("origin_offset"), reason)


def space_of(topic: str, partition: str) -> Column:
    """The space of the requests in a topic's partition."""
    return F.concat_ws("/", F.col(topic), F.col(partition).cast("string"))


def _claiming(decoded: DataFrame, space: Column, number: Column, reason: Column) -> DataFrame:
    return decoded.withColumns({"space": space, "number": number.cast("long"), "reason": reason})
