"""The exceptions, listed in tables with the columns that help to find them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql import types as T  # noqa: N812 - its customary name

from pipeline.audit import attribution, ordering, workload
from pipeline.audit.reconciliation import FEW
from pipeline.lake.schemas import BRONZE, MANIFEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.audit.backlog import Backlog
    from pipeline.audit.expected import ExpectedRequests
    from pipeline.audit.reconciliation import Reconciled
    from pipeline.audit.result import AuditResult

_PLACE = ["topic", "partition", "offset"]
_ORIGIN = ["origin_topic", "origin_partition", "origin_offset"]
_RECORD = [*_PLACE, "timestamp", "key_text"]
NUMBER = ["space", "number"]
MEASURED = ["started_at", "finished_at", "requested_at", "run", "error_type", "error_message"]
ANSWER = [*_RECORD, "request_sequence", "outcome", "attempt", "worker", *_ORIGIN]
# Columns that all lists have.
_TYPES = {field.name: field.dataType for table in (MANIFEST, BRONZE) for field in table} | {
    "sequence": T.LongType(),
    "place": T.StringType(),
    "reason": T.StringType(),
    "behind_offset": T.LongType(),
}


class Listed(NamedTuple):
    """A table of exceptions: its schema, and its rows, or None if counting found none."""

    schema: T.StructType
    frame: DataFrame | None


def exceptions(
    result: AuditResult,
    expected: ExpectedRequests,
    records: DataFrame,
    every: DataFrame,
    found: Reconciled,
    answers: DataFrame,
    late: DataFrame | None,
) -> dict[str, Listed]:
    """Return a table for each kind of exception. ``answers`` are those that ``measured.wanted`` selects."""
    counts = result.counts
    requests = ["sequence", "source_id"] if expected.by_manifest else [*_PLACE, "timestamp"]
    unanswered, lost = _dead_letters(result, expected, records, every)
    return {
        "missing": _listed(requests, _missing(expected, found) if counts.missing else None),
        "duplicate": _listed([*ANSWER, "place"], found.doubles if counts.duplicate else None),
        "unexpected": _listed([*ANSWER, "reason"], _unexpected(every, found) if counts.unexpected else None),
        "undecodable": _listed(
            [*_RECORD, "decode_error", "raw"], attribution.undecodable(records) if counts.undecodable else None
        ),
        "out_of_order": _listed([*ordering.STREAM, "origin_offset", "offset", "behind_offset"], late),
        "failed": _listed(
            [*ANSWER, "error_type", "error_message"], workload.failures(answers) if counts.failed else None
        ),
        "dead_letters_unanswered": _listed([*_RECORD, *_ORIGIN, "error_type"], unanswered),
        "dead_letters_lost": _listed(ANSWER, lost),
    }


def _listed(columns: list[str], frame: DataFrame | None) -> Listed:
    schema = T.StructType([T.StructField(name, _TYPES[name]) for name in columns])
    return Listed(schema, None if frame is None else frame.select(*columns))


def _missing(expected: ExpectedRequests, found: Reconciled) -> DataFrame:
    numbers = F.broadcast(found.missing_requests) if found.missing < FEW else found.missing_requests
    named = expected.numbers.join(numbers, on=NUMBER, how="left_semi")
    return named.withColumnRenamed("number", "sequence") if expected.by_manifest else named


def _unexpected(every: DataFrame, found: Reconciled) -> DataFrame:
    unexpected = every.where(F.col("reason").isNotNull()).select(*ANSWER, "reason")
    return unexpected.unionByName(found.unplanned.select(*ANSWER, "reason"))


def _dead_letters(
    result: AuditResult, expected: ExpectedRequests, records: DataFrame, every: DataFrame
) -> tuple[DataFrame | None, DataFrame | None]:
    """Return dead letters without their answer and dead-lettered answers without a dead letter. Count both."""
    counts = result.counts
    if not counts.dead_letters and attribution.DEAD_LETTERED not in result.outcomes:
        return None, None
    dead_letters = attribution.dead_letters(records)
    ours = F.col("job") == result.job if expected.by_manifest else F.col("origin_topic").isin(*expected.topics)
    dead_letters = dead_letters.where(ours)
    answers = every.where(F.col("reason").isNull() & (F.col("outcome") == attribution.DEAD_LETTERED))
    alone = dead_letters.join(answers, on=_ORIGIN, how="left_anti")
    lost = answers.join(dead_letters, on=_ORIGIN, how="left_anti")
    counts.dead_letters_unanswered, counts.dead_letters_lost = alone.count(), lost.count()
    return (alone if counts.dead_letters_unanswered else None, lost if counts.dead_letters_lost else None)


def of_backlog(backlog: Backlog) -> list[dict[str, Any]]:
    """Return the undecided records."""
    return [
        {"partition": partition, "offset": offset, "key": None if key is None else key.decode(errors="replace")}
        for found in (backlog.open, backlog.open_dead_letters)
        for partition, records in sorted(found.items())
        for offset, key in records.first
    ]
