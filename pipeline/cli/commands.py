"""The commands: each runs a job in a session and prints its result. Imports Spark, and all that the jobs need."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING, Any

from pipeline.audit.result import Verdict
from pipeline.cli.exit_codes import ExitCode
from pipeline.jobs.answers import answers
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from pipeline.jobs.compact import compact
from pipeline.jobs.plan import plan
from pipeline.jobs.replay import replay
from pipeline.jobs.resend import resend_missing
from pipeline.jobs.run import judge_submitted, submit_requests
from pipeline.jobs.submit import submit
from pipeline.lake.catalogs import prepared
from pipeline.progress import report
from worker.cli.console import stoppable

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from pipeline.audit.result import AuditResult

_ALWAYS = {"planned", "answered", "missing", "duplicate", "unexpected", "undecodable", "open", "failed", "out_of_order"}
_CODES = {
    Verdict.PROVED: ExitCode.DONE,
    Verdict.DISPROVED: ExitCode.FAILED,
    Verdict.UNDECIDED: ExitCode.UNDECIDED,
}


def run(command: str, spark: SparkSession, settings: Any, limit: int | None) -> int:
    """Run a command in a session. Return its exit code, which is FAILED from ``limit`` failed answers on."""
    # Spark's handler calls the JVM in the middle of another call, which fails with a trace instead of an interrupt.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    settings = prepared(spark, settings)
    if command in _JUDGING:
        return _JUDGING[command](spark, settings, limit)
    return _COMMANDS[command](spark, settings)


def _plan(spark: SparkSession, settings: Any) -> int:
    manifest, created = plan(spark, settings, settings.source, new_run=settings.new_run)
    facts = {"run": manifest.run, "rows": manifest.rows, "parts": manifest.parts}
    report("planned", job=settings.job, **facts, created=created, manifest=settings.manifest)
    return ExitCode.DONE


def _submit(spark: SparkSession, settings: Any) -> int:
    began = time.monotonic()
    done = (resend_missing if settings.resend else submit)(spark, settings)
    facts = done._asdict()
    if settings.dry_run:
        del facts["sent"]
        facts["missing"] = done.planned - done.already_sent
    event = "to submit" if settings.dry_run else "submitted"
    seconds = round(time.monotonic() - began, 1)
    report(event, job=settings.job, semantics=settings.semantics, **facts, seconds=seconds)
    return ExitCode.DONE


def _collect(spark: SparkSession, settings: Any) -> int:
    with stoppable() as stop:
        done = collect(spark, settings, lambda: bool(stop))
    report("collected", job=settings.job, **done._asdict())
    return ExitCode.DONE if done.complete or settings.follow else ExitCode.INTERRUPTED


def _answers(spark: SparkSession, settings: Any) -> int:
    tables = answers(spark, settings)
    report("answers", job=settings.job, **tables._asdict())
    return ExitCode.DONE


def _replay(spark: SparkSession, settings: Any) -> int:
    report("to replay" if settings.dry_run else "replayed", job=settings.job, **replay(spark, settings)._asdict())
    return ExitCode.DONE


def _compact(spark: SparkSession, settings: Any) -> int:
    report("compacted", job=settings.job, before=settings.before, folders=compact(spark, settings))
    return ExitCode.DONE


def _audit(spark: SparkSession, settings: Any, limit: int | None) -> int:
    return _verdict(settings.job, audit(spark, settings), limit)


def _run_to_verdict(spark: SparkSession, settings: Any, limit: int | None) -> int:
    submitted = submit_requests(spark, settings)  # a signal ends it at once, as it ends ``pipeline submit``
    with stoppable() as stop:
        done = judge_submitted(spark, settings, submitted, lambda: bool(stop))
    facts = {"run": done.submitted.run, "planned": done.submitted.planned, "answered": done.answered}
    if done.audit is None:
        report("interrupted", job=settings.job, **facts)
        return ExitCode.INTERRUPTED
    return _verdict(settings.job, done.audit, limit)


def _verdict(job: str, result: AuditResult, limit: int | None) -> int:
    counts = {name: value for name, value in vars(result.counts).items() if value or name in _ALWAYS}
    reasons = {"reasons": result.reasons} if result.reasons else {}
    report("audited", job=job, run=result.run, verdict=result.verdict.value, **counts, **reasons)
    code = _CODES[result.verdict]
    too_many = limit is not None and result.counts.failed >= limit
    return ExitCode.FAILED if code is ExitCode.DONE and too_many else code


_COMMANDS: dict[str, Callable[[Any, Any], int]] = {
    "plan": _plan,
    "submit": _submit,
    "collect": _collect,
    "answers": _answers,
    "replay": _replay,
    "compact": _compact,
}
_JUDGING: dict[str, Callable[[Any, Any, int | None], int]] = {"audit": _audit, "run": _run_to_verdict}
