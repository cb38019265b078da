"""The exceptions one by one, as tables: each with what helps to find it again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name
from pyspark.sql import types as T  # noqa: N812 - its customary name

from pipeline.reconciled import FEW
from pipeline.schemas import BRONZE, MANIFEST
from pipeline.transforms import claims, order, workload

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.asked import Asked
    from pipeline.audit.broker import Backlog
    from pipeline.findings import Findings
    from pipeline.reconciled import Reconciled

_PLACE = ["topic", "partition", "offset"]
_ORIGIN = ["origin_topic", "origin_partition", "origin_offset"]
_RECORD = [*_PLACE, "timestamp", "key_text"]
NUMBER = ["space", "number"]
MEASURED = ["started_at", "finished_at", "error_type", "error_message"]
ANSWER = [*_RECORD, "request_sequence", "outcome", "attempt", "worker", *_ORIGIN]
# Of the columns of all lists.
_TYPES = {field.name: field.dataType for table in (MANIFEST, BRONZE) for field in table} | {
    "sequence": T.LongType(),
    "place": T.StringType(),
    "reason": T.StringType(),
    "behind_offset": T.LongType(),
}


class Listed(NamedTuple):
    """A table of exceptions: its schema, and its rows unless counting has told that there are none."""

    schema: T.StructType
    frame: DataFrame | None


def exceptions(
    findings: Findings,
    asked: Asked,
    records: DataFrame,
    every: DataFrame,
    found: Reconciled,
    answers: DataFrame,
    late: DataFrame | None,
) -> dict[str, Listed]:
    """A table for each kind of exception. ``answers`` are the ``measured.wanted`` ones."""
    counts = findings.counts
    requests = ["sequence", "source_id"] if asked.by_manifest else [*_PLACE, "timestamp"]
    letters, lost = _letters(findings, asked, records, every)
    return {
        "missing": _listed(requests, _missing(asked, found) if counts.missing else None),
        "duplicate": _listed([*ANSWER, "place"], found.doubles if counts.duplicate else None),
        "unexpected": _listed([*ANSWER, "reason"], _unexpected(every, found) if counts.unexpected else None),
        "undecodable": _listed(
            [*_RECORD, "decode_error", "raw"], claims.undecodable(records) if counts.undecodable else None
        ),
        "out_of_order": _listed([*order.STREAM, "origin_offset", "offset", "behind_offset"], late),
        "failed": _listed(
            [*ANSWER, "error_type", "error_message"], workload.failures(answers) if counts.failed else None
        ),
        "letters_unanswered": _listed([*_RECORD, *_ORIGIN, "error_type"], letters),
        "letters_lost": _listed(ANSWER, lost),
    }


def _listed(columns: list[str], frame: DataFrame | None) -> Listed:
    schema = T.StructType([T.StructField(name, _TYPES[name]) for name in columns])
    return Listed(schema, None if frame is None else frame.select(*columns))


def _missing(asked: Asked, found: Reconciled) -> DataFrame:
    numbers = F.broadcast(found.missing_requests) if found.missing < FEW else found.missing_requests
    named = asked.numbers.join(numbers, on=NUMBER, how="left_semi")
    return named.withColumnRenamed("number", "sequence") if asked.by_manifest else named


def _unexpected(every: DataFrame, found: Reconciled) -> DataFrame:
    strangers = every.where(F.col("reason").isNotNull()).select(*ANSWER, "reason")
    return strangers.unionByName(found.unplanned.select(*ANSWER, "reason"))


def _letters(
    findings: Findings, asked: Asked, records: DataFrame, every: DataFrame
) -> tuple[DataFrame | None, DataFrame | None]:
    """Dead letters without their answer, and dead-lettered answers without a dead letter; also counted."""
    counts = findings.counts
    if not counts.dead_letters and claims.DEAD_LETTERED not in findings.outcomes:
        return None, None
    letters = claims.dead_letters(records)
    ours = F.col("job") == findings.job if asked.by_manifest else F.col("origin_topic").isin(*asked.topics)
    letters = letters.where(ours)
    answers = every.where(F.col("reason").isNull() & (F.col("outcome") == claims.DEAD_LETTERED))
    alone = letters.join(answers, on=_ORIGIN, how="left_anti")
    lost = answers.join(letters, on=_ORIGIN, how="left_anti")
    counts.letters_unanswered, counts.letters_lost = alone.count(), lost.count()
    return (alone if counts.letters_unanswered else None, lost if counts.letters_lost else None)


def of_backlog(backlog: Backlog) -> list[dict[str, Any]]:
    """The records that nobody has decided about."""
    return [
        {"partition": partition, "offset": offset, "key": None if key is None else key.decode(errors="replace")}
        for found in (backlog.open, backlog.open_letters)
        for partition, records in sorted(found.items())
        for offset, key in records
    ]
