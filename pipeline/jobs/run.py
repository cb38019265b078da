"""``pipeline run``: submit, follow the answers, write the tables, and audit, in one session.

The same command continues after a kill at any point, because each of its steps does.
"""

from __future__ import annotations

import functools
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit.attribution import ONE_SPACE, of_run
from pipeline.audit.backlog import backlog
from pipeline.audit.bitmap import words
from pipeline.errors import AuditFailedError, is_unreachable
from pipeline.jobs.answers import AnswerTables, answers
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from pipeline.jobs.submit import Submitted, submit
from pipeline.lake.bronze import Bronze
from pipeline.progress import meter
from pipeline.settings import AnswersSettings, AuditSettings, CollectSettings, SubmitSettings

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from pyspark.sql import SparkSession

    from pipeline.audit.result import AuditResult
    from pipeline.progress import Meter
    from pipeline.settings import RunSettings

_TRIGGER = 1.0  # seconds between batches, short because the answers are watched
_WAIT = 60.0  # seconds to wait for open transactions before the audit


class RunResult(NamedTuple):
    """The results of the steps. ``answers`` and ``audit`` are None if the run was stopped before all answers came.

    ``answered`` counts requests. If the run was stopped, or its timeout was over, it may count duplicate answers too.
    """

    submitted: Submitted
    answered: int
    answers: AnswerTables | None
    audit: AuditResult | None


def run(spark: SparkSession, settings: RunSettings, stop: Callable[[], bool] = lambda: False) -> RunResult:
    """Run the job to its verdict, or until ``stop()`` is true while it follows the answers. Raise as its two parts."""
    return judge_submitted(spark, settings, submit_requests(spark, settings), stop)


def submit_requests(spark: SparkSession, settings: RunSettings) -> Submitted:
    """Submit as the job of a run. Raise JobError and BrokerError as ``submit`` does."""
    sending = {name: getattr(settings, name) for name in ("source", "semantics", "chunk", "rate", "new_run")}
    return submit(spark, SubmitSettings(kafka=settings.kafka, **_common(settings), **sending))


def judge_submitted(
    spark: SparkSession, settings: RunSettings, submitted: Submitted, stop: Callable[[], bool]
) -> RunResult:
    """Follow the answers until all are there or ``stop()`` is true, write the tables, and audit.

    After ``timeout`` seconds it audits even if answers are missing. Raise JobError and BrokerError as the steps do, and
    AuditFailedError if the audit fails.
    """
    common = _common(settings)
    answered = _follow(spark, settings, common, submitted, stop)
    if stop():
        return RunResult(submitted, answered, None, None)
    judging = AuditSettings(kafka=settings.kafka, html=True, out=settings.out, **common)
    _collect_the_rest(spark, judging, common)
    with ThreadPoolExecutor(1) as pool:
        # Both read bronze. In parallel, each uses the cores while the other plans.
        tables = pool.submit(answers, spark, AnswersSettings(kafka=settings.kafka, **common))
        try:
            audited = audit(spark, judging)
        except Exception as error:
            if is_unreachable(error):
                raise
            raise AuditFailedError from error
    return RunResult(submitted, answered, tables.result(), audited)


def _common(settings: RunSettings) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in ("job", "lake", "table_format", "files", "master", "progress")}


class _Answered:
    """The number of answered requests of the run. Duplicate answers count, too, until it may be complete."""

    def __init__(self, shown: Meter, planned: int, recount: Callable[[], int]) -> None:
        self._shown = shown
        self._planned = planned
        self._recount = recount
        self.count = 0

    def add(self, answers_of_run: int | None) -> None:
        """Count more answers. None: another job or call has stored some, so count the answered requests."""
        count = None if answers_of_run is None else self.count + answers_of_run
        # Only the table tells duplicates apart. To look there for each batch would be slow.
        self.count = self._recount() if count is None or count >= self._planned else count
        self._shown.show(self.count, self._planned)

    @property
    def complete(self) -> bool:
        return self.count >= self._planned


def _follow(
    spark: SparkSession,
    settings: RunSettings,
    common: dict[str, Any],
    submitted: Submitted,
    stop: Callable[[], bool],
) -> int:
    """Collect until each request is answered. Return the number of answered requests, see ``_Answered``."""
    end = None if settings.timeout is None else time.monotonic() + settings.timeout
    collecting = CollectSettings(
        kafka=settings.kafka, available_now=False, follow=True, trigger=_TRIGGER, **{**common, "progress": "off"}
    )
    with meter(settings.progress, f"answers {settings.job}", submitted.planned) as shown:
        recount = functools.partial(_collected, spark, collecting, submitted.run, submitted.planned)
        answered = _Answered(shown, submitted.planned, recount)
        answered.add(None)

        def over() -> bool:
            late = end is not None and time.monotonic() > end
            return stop() or answered.complete or late

        if not answered.complete:
            collect(spark, collecting, over, answered.add, submitted.run)
    return answered.count


def _collect_the_rest(spark: SparkSession, settings: AuditSettings, common: dict[str, Any]) -> None:
    """Collect what was committed with the last answers, such as dead letters. Wait for open transactions."""
    end, bronze = time.monotonic() + _WAIT, Bronze(spark, settings)
    while not (found := backlog(settings, bronze)).settled and time.monotonic() < end:
        if found.uncollected:
            rest = CollectSettings(
                kafka=settings.kafka, available_now=True, follow=False, **{**common, "progress": "off"}
            )
            collect(spark, rest)
        else:
            time.sleep(_TRIGGER)


def _collected(spark: SparkSession, settings: CollectSettings, run_id: str, planned: int) -> int:
    """Return the number of the run's requests whose answers are in the table."""
    found = Bronze(spark, settings).read().where(of_run(settings.job, run_id) & (F.col("request_sequence") < planned))
    numbered = found.select(F.lit(ONE_SPACE).alias("space"), F.col("request_sequence").cast("long").alias("number"))
    counted = words(numbered).agg(F.sum(F.bit_count("bits")).alias("requests")).collect()
    return counted[0].requests or 0
