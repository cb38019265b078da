"""The audit as a job: the order of its checks, and its output."""

from __future__ import annotations

import contextlib
import functools
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit import attribution, chain, evidence, exceptions, ordering, workload
from pipeline.audit.backlog import awaited, read_up_to
from pipeline.audit.durations import step_of
from pipeline.audit.expected import expected_requests, other_jobs, sent_records
from pipeline.audit.facts import gather
from pipeline.audit.reconciliation import FEW, Reconciled
from pipeline.audit.result import AuditResult, Counts
from pipeline.audit.timings import measure, sampled_every, wanted
from pipeline.audit.writer import Output
from pipeline.lake.bronze import Bronze, retry_if_files_replaced
from pipeline.report import page
from pipeline.session import set_shuffle_partitions

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, Row, SparkSession

    from pipeline.audit.backlog import Backlog
    from pipeline.audit.evidence import Evidence
    from pipeline.audit.expected import ExpectedRequests
    from pipeline.settings import AuditSettings


def audit(spark: SparkSession, settings: AuditSettings) -> AuditResult:
    """Audit a job. Write ``audit.json``, the tables of exceptions and, if requested, the report.

    Raise JobError if there is neither a manifest nor a request topic, and BrokerError if Kafka is unreachable.
    """
    output = Output(spark, settings)
    output.begin()
    bronze = Bronze(spark, settings)
    backlog = awaited(settings, bronze)
    requests = expected_requests(spark, settings, settings.kafka)
    found = gather(spark, settings, bronze, requests, backlog.ends)
    sent = functools.partial(_sent, spark, settings, requests)
    result = retry_if_files_replaced(functools.partial(examine, settings, bronze, backlog, requests, sent, output))
    result.evidence = [*found, *result.evidence]
    if settings.after is not None:
        compared = chain.examine(spark, settings, requests, result.counts)
        result.evidence.append(compared.evidence)
        output.tables(result, {}, compared.exceptions)
    if settings.html:
        output.text("report.html", page(result))
    output.finish(result)
    return result


def _sent(spark: SparkSession, settings: AuditSettings, requests: ExpectedRequests) -> DataFrame | None:
    """Return the records of the request topic, with their headers."""
    return sent_records(spark, settings.kafka) if requests.by_manifest else requests.numbers


def examine(
    settings: AuditSettings,
    bronze: Bronze,
    backlog: Backlog,
    requests: ExpectedRequests,
    sent: Callable[[], DataFrame | None],
    output: Output,
) -> AuditResult:
    """Run all checks that read the tables. The caller runs it again if the tables were compacted meanwhile."""
    result = AuditResult(job=settings.job, requests_from=requests.source, counts=Counts(), run=requests.run)
    _record_backlog(result, backlog, bronze)
    set_shuffle_partitions(requests.numbers.sparkSession, requests.rows)
    stored, others = read_up_to(bronze, backlog.ends), other_jobs(bronze.files, settings)
    if others:
        result.counts.of_other_jobs = attribution.of_other_jobs(stored, others, requests.topics).count()
    if requests.other_runs:
        result.counts.of_other_runs = attribution.of_other_runs(stored, settings.job, requests.other_runs).count()
    records = attribution.without_other_jobs(stored, others, requests.topics)
    records = attribution.without_other_runs(records, settings.job, requests.other_runs)
    every = requests.claims(records, settings.job)
    profiled = workload.profile(every).persist()
    answers = attribution.answers(every)
    good = answers.where(F.col("reason").isNull()).select(
        *exceptions.ANSWER, "isprocessed", *exceptions.NUMBER, *exceptions.MEASURED
    )
    result.sampled_every = sampled_every(requests.rows)
    with contextlib.ExitStack() as over:
        over.callback(profiled.unpersist)
        # The profile is another pass over the table. In parallel, each uses the cores while the other plans or ends.
        outcomes = over.enter_context(ThreadPoolExecutor(1)).submit(workload.by_outcome(profiled).collect)
        found = Reconciled(requests, good, sent, wanted(result))
        over.callback(found.close)
        _count(result, found, outcomes.result())
        accepted = found.accepted
        looked_at = _kept(over, ordering.stretches(accepted, result.step))
        measured = found.chosen
        late = _late(result, over, accepted, looked_at)
        tables = measure(result, profiled, looked_at, measured)
        if requests.by_manifest:
            result.evidence = _evidence(result, found, requests)
        output.tables(result, tables, exceptions.exceptions(result, requests, records, answers, found, measured, late))
    return result


def _evidence(result: AuditResult, found: Reconciled, requests: ExpectedRequests) -> list[Evidence]:
    """Return the evidence that can only be checked once the answers are counted."""
    runs = evidence.of_runs(requests.run, result.counts.without_run, requests.other_runs)
    return [runs, evidence.of_replays(found.unproven)]


def _kept(over: contextlib.ExitStack, frame: DataFrame) -> DataFrame:
    """Return the frame cached: computed once, and freed at the end."""
    over.callback(frame.unpersist)
    return frame.persist()


def _late(
    result: AuditResult, over: contextlib.ExitStack, accepted: DataFrame, looked_at: DataFrame
) -> DataFrame | None:
    """Return the answers out of order, or None if the stretches show that there are none."""
    suspected = _kept(over, ordering.suspects(looked_at))
    if not (count := suspected.count()):
        return None
    late = _kept(over, ordering.out_of_order(accepted, F.broadcast(suspected) if count < FEW else suspected))
    result.counts.out_of_order = late.count()
    return late


def _record_backlog(result: AuditResult, backlog: Backlog, bronze: Bronze) -> None:
    counts, queries = result.counts, bronze.queries().values()
    counts.open = sum(undecided.records for undecided in backlog.open.values())
    counts.open_dead_letters = sum(undecided.records for undecided in backlog.open_dead_letters.values())
    counts.blocked_partitions = len(backlog.open) + len(backlog.open_dead_letters)
    counts.uncollected = sum(backlog.uncollected.values())
    result.loss_allowed = any(query["allow_data_loss"] for query in queries)
    result.losses = [line for query in queries for line in query["lost"]]
    result.lists["open"] = exceptions.of_backlog(backlog)
    result.lists["uncollected"] = [{"partition": p, "records": n} for p, n in sorted(backlog.uncollected.items())]


def _count(result: AuditResult, found: Reconciled, rows: list[Row]) -> None:
    counts = result.counts
    counts.planned, counts.answered, counts.missing = found.planned, found.answered, found.missing
    counts.duplicate, counts.duplicate_answers, counts.replayed = found.duplicate, found.surplus, found.replayed
    counts.of_deleted_requests = found.of_deleted
    kinds = Counter[int]()
    for row in rows:
        kinds[row.kind] += row.records
    counts.unexpected = kinds[workload.UNEXPECTED] + found.stray
    counts.undecodable = kinds[workload.UNDECODABLE]
    counts.dead_letters = kinds[workload.DEAD]
    counts.without_run = sum(row.without_run for row in rows if row.kind == workload.ANSWERED)
    _outcomes(result, found, [row for row in rows if row.kind == workload.ANSWERED])


def _outcomes(result: AuditResult, found: Reconciled, rows: list[Row]) -> None:
    """Fill in the outcomes of the answers that count: answers to planned requests, without additional ones."""
    if rows:
        result.begin = min(row["first"] for row in rows).timestamp()
        result.end = max(row["last"] for row in rows).timestamp()
        result.step = step_of(result.end - result.begin)
    answers = {(row.outcome, row.isprocessed): row.records for row in rows}
    for other in found.others():
        answers[other.outcome, other.isprocessed] -= other["count"]
    result.counts.failed = sum(count for (_, processed), count in answers.items() if not processed)
    for (outcome, _), count in answers.items():
        if count:
            result.outcomes[outcome] = result.outcomes.get(outcome, 0) + count
