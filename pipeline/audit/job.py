"""The audit as a job: what is looked at in which order, and what is written."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.asked import asked, other_jobs, sent_records
from pipeline.audit import lists
from pipeline.audit.broker import awaited
from pipeline.audit.measured import measure, sampled_every, wanted
from pipeline.audit.output import Output
from pipeline.bronze import Bronze, undisturbed
from pipeline.durations import step_of
from pipeline.findings import Counts, Findings
from pipeline.progress import report
from pipeline.reconciled import FEW, Reconciled
from pipeline.report import page
from pipeline.session import build_session, divide
from pipeline.transforms import claims, order, workload

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

    from pipeline.asked import Asked
    from pipeline.audit.broker import Backlog
    from pipeline.settings import AuditSettings


def run(settings: AuditSettings) -> int:
    """Audit a job and say what came of it. The exit code: 0 proved, 1 disproved, 2 undecided."""
    spark = build_session(f"audit {settings.job}", master=settings.master, table_format=settings.table_format)
    findings = audit(spark, settings)
    counts = {name: value for name, value in vars(findings.counts).items() if value or name in _ALWAYS}
    report("audited", job=settings.job, verdict=findings.verdict.value, **counts)
    return findings.verdict.exit_code


_ALWAYS = {"planned", "answered", "missing", "duplicate", "unexpected", "undecodable", "open", "failed", "out_of_order"}


def audit(spark: SparkSession, settings: AuditSettings) -> Findings:
    """Audit a job, and write ``audit.json``, the tables of exceptions and, if asked for, the report."""
    output = Output(spark, settings)
    output.begin()
    bronze = Bronze(spark, settings)
    backlog = awaited(settings, bronze)
    requests = asked(spark, settings, settings.kafka)
    sent = functools.partial(_sent, spark, settings, requests)
    findings = undisturbed(functools.partial(examine, settings, bronze, backlog, requests, sent, output))
    if settings.html:
        output.text("report.html", page(findings))
    output.finish(findings)
    return findings


def _sent(spark: SparkSession, settings: AuditSettings, requests: Asked) -> DataFrame | None:
    """The records of the request topic, with their timestamps and headers."""
    return sent_records(spark, settings.kafka) if requests.by_manifest else requests.numbers


def examine(
    settings: AuditSettings,
    bronze: Bronze,
    backlog: Backlog,
    requests: Asked,
    sent: Callable[[], DataFrame | None],
    output: Output,
) -> Findings:
    """Everything that reads the tables. Called again from the start if they were compacted meanwhile."""
    findings = Findings(job=settings.job, requests_from=requests.source, counts=Counts())
    _note_backlog(findings, backlog, bronze)
    divide(requests.numbers.sparkSession, requests.rows)
    stored, others = bronze.read(), other_jobs(bronze.files, settings)
    records = claims.without_other_jobs(stored, others)
    if others:
        findings.counts.of_other_jobs = claims.of_other_jobs(stored, others).count()
    every = requests.claims(records, settings.job)
    profiled = workload.profile(every).persist()
    answers = claims.answers(every)
    good = answers.where(F.col("reason").isNull()).select(*lists.ANSWER, "isprocessed", *lists.NUMBER, *lists.MEASURED)
    findings.sampled_every = sampled_every(requests.rows)
    with contextlib.ExitStack() as over:
        over.callback(profiled.unpersist)
        # The profile is another look at the table: each keeps the cores busy where the other plans or ends.
        outcomes = over.enter_context(ThreadPoolExecutor(1)).submit(workload.by_outcome(profiled).collect)
        found = Reconciled(requests, good, sent, wanted(findings))
        over.callback(found.close)
        _count(findings, found, outcomes.result())
        standing = found.standing
        looked_at = _kept(over, order.stretches(standing, findings.step))
        measured = found.chosen
        late = _late(findings, over, standing, looked_at)
        tables = measure(findings, profiled, looked_at, measured, sent)
        output.tables(findings, tables, lists.exceptions(findings, requests, records, answers, found, measured, late))
    return findings


def _kept(over: contextlib.ExitStack, frame: DataFrame) -> DataFrame:
    """Computed once, and freed at the end."""
    over.callback(frame.unpersist)
    return frame.persist()


def _late(
    findings: Findings, over: contextlib.ExitStack, standing: DataFrame, looked_at: DataFrame
) -> DataFrame | None:
    """The answers out of order; None where the look at the stretches has told that there are none."""
    suspected = _kept(over, order.suspects(looked_at))
    if not (count := suspected.count()):
        return None
    late = _kept(over, order.out_of_order(standing, F.broadcast(suspected) if count < FEW else suspected))
    findings.counts.out_of_order = late.count()
    return late


def _note_backlog(findings: Findings, backlog: Backlog, bronze: Bronze) -> None:
    counts, lives = findings.counts, bronze.lives().values()
    counts.open = sum(len(records) for records in backlog.open.values())
    counts.open_letters = sum(len(records) for records in backlog.open_letters.values())
    counts.blocked_partitions = len(backlog.open) + len(backlog.open_letters)
    counts.uncollected = sum(backlog.uncollected.values())
    findings.loss_allowed = any(life["allow_data_loss"] for life in lives)
    findings.losses = [line for life in lives for line in life["lost"]]
    findings.lists["open"] = lists.of_backlog(backlog)
    findings.lists["uncollected"] = [{"partition": p, "records": n} for p, n in sorted(backlog.uncollected.items())]


def _count(findings: Findings, found: Reconciled, rows: list[Row]) -> None:
    counts = findings.counts
    counts.planned, counts.answered, counts.missing = found.planned, found.answered, found.missing
    counts.duplicate, counts.duplicate_answers, counts.replayed = found.duplicate, found.surplus, found.replayed
    counts.of_deleted_requests = found.of_deleted
    kinds = Counter[int]()
    for row in rows:
        kinds[row.kind] += row.records
    counts.unexpected = kinds[workload.UNEXPECTED] + found.stray
    counts.undecodable = kinds[workload.UNDECODABLE]
    counts.dead_letters = kinds[workload.LETTER]
    _outcomes(findings, found, [row for row in rows if row.kind == workload.ANSWERED])


def _outcomes(findings: Findings, found: Reconciled, rows: list[Row]) -> None:
    """Of the answers that count: those to planned requests, without the others that these have."""
    if rows:
        findings.begin = min(row["first"] for row in rows).timestamp()
        findings.end = max(row["last"] for row in rows).timestamp()
        findings.step = step_of(findings.end - findings.begin)
    answers = {(row.outcome, row.isprocessed): row.records for row in rows}
    for other in found.others():
        answers[other.outcome, other.isprocessed] -= other["count"]
    findings.counts.failed = sum(count for (_, processed), count in answers.items() if not processed)
    for (outcome, _), count in answers.items():
        if count:
            findings.outcomes[outcome] = findings.outcomes.get(outcome, 0) + count
