"""The request that each committed answer claims to answer.

A request is identified by a ``space`` and a ``number`` in it. With a manifest there is one space, and the number is the
request's sequence, which is in the record's key. Without a manifest, each partition of the request topic is a space,
and the number is the request's offset, from the origin in the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.lake.schemas import ANSWER, DEAD_LETTER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

ONE_SPACE = ""  # of all requests of a manifest
DEAD_LETTERED = "DEAD_LETTERED"
# Why an answer claims no planned request.
NO_KEY = "its key names no request"
OTHER_JOB = "its key names another job"
OTHER_RUN = "it answers another run of the job"
NOT_PLANNED = "its request is not planned"
SEQUENCE_DIFFERS = "its sequence is not that of its key"
NO_ORIGIN = "it names no origin"
OTHER_TOPIC = "its origin is in another topic"


def answers(bronze: DataFrame) -> DataFrame:
    """Return the records of the ack topic that could be decoded."""
    return bronze.where((F.col("kind") == ANSWER) & F.col("decode_error").isNull())


def undecodable(bronze: DataFrame) -> DataFrame:
    """Return the records of the ack topic that are not answers."""
    return bronze.where((F.col("kind") == ANSWER) & F.col("decode_error").isNotNull())


def dead_letters(bronze: DataFrame) -> DataFrame:
    """Return the records of the dead-letter topic."""
    return bronze.where(F.col("kind") == DEAD_LETTER)


def of_other_jobs(bronze: DataFrame, jobs: Sequence[str], topics: Sequence[str] = ()) -> DataFrame:
    """Return the records of known other jobs. Each job has a separate audit.

    Answers to requests of ``topics`` do not count as theirs: a follow-up request may have the key of its parent.
    """
    return bronze.where(_of_jobs(jobs, topics)) if jobs else bronze.limit(0)


def without_other_jobs(bronze: DataFrame, jobs: Sequence[str], topics: Sequence[str] = ()) -> DataFrame:
    """Return the records that are not of known other jobs."""
    return bronze.where(~_of_jobs(jobs, topics)) if jobs else bronze


def _of_jobs(jobs: Sequence[str], topics: Sequence[str]) -> Column:
    no = F.lit(False)  # noqa: FBT003 - a column's value
    of_jobs = F.coalesce(F.col("job").isin(*jobs), no)
    return of_jobs & ~F.coalesce(F.col("origin_topic").isin(*topics), no) if topics else of_jobs


def of_other_runs(bronze: DataFrame, job: str, runs: Sequence[str]) -> DataFrame:
    """Return the records of known runs of the same job that are not audited."""
    named = [run for run in runs if run]
    return bronze.where((F.col("job") == job) & F.col("run").isin(*named)) if named else bronze.limit(0)


def without_other_runs(bronze: DataFrame, job: str, runs: Sequence[str]) -> DataFrame:
    """Return the records of none of these runs."""
    named = [run for run in runs if run]
    if not named:
        return bronze
    of_others = F.coalesce(F.col("run").isin(*named), F.lit(False))  # noqa: FBT003 - a column's value
    return bronze.where(F.col("job").isNull() | (F.col("job") != job) | ~of_others)


def of_run(job: str, run: str) -> Column:
    """Return whether a row of bronze is an answer to the run. An answer without a run belongs to any run."""
    of_job = (F.col("kind") == ANSWER) & (F.col("job") == job)
    return of_job & (F.coalesce("run", F.lit(run)) == run)


def by_sequence(decoded: DataFrame, job: str, rows: int, run: str = "") -> DataFrame:
    """Return each answer with ``space``, ``number`` and, if it claims none of the ``rows`` requests, a ``reason``.

    An answer without a run belongs to any run.
    """
    planned = F.col("request_sequence") < rows  # the codec never returns a negative sequence
    # A request that could not be decoded has no sequence, and its answer has sequence 0.
    differs = (F.col("sequence") != F.col("request_sequence")) & (F.col("outcome") != DEAD_LETTERED)
    reason = (
        F.when(F.col("job").isNull(), NO_KEY)
        .when(F.col("job") != job, OTHER_JOB)
        .when(F.col("run") != run, OTHER_RUN)
        .when(~planned, NOT_PLANNED)
        .when(differs, SEQUENCE_DIFFERS)
    )
    return _claiming(decoded, F.lit(ONE_SPACE), F.col("request_sequence"), reason)


def by_origin(decoded: DataFrame, topics: Sequence[str]) -> DataFrame:
    """Return the same for requests that are records of ``topics``. The comparison finds claims of absent requests."""
    reason = F.when(F.col("origin_topic").isNull(), NO_ORIGIN).when(~F.col("origin_topic").isin(*topics), OTHER_TOPIC)
    return _claiming(decoded, space_of("origin_topic", "origin_partition"), F.col("origin_offset"), reason)


def space_of(topic: str, partition: str) -> Column:
    """Return the space of the requests in a topic's partition."""
    return F.concat_ws("/", F.col(topic), F.col(partition).cast("string"))


def _claiming(decoded: DataFrame, space: Column, number: Column, reason: Column) -> DataFrame:
    return decoded.withColumns({"space": space, "number": number.cast("long"), "reason": reason})
