"""The pipeline as a Python API: one object for each job. See docs/pipeline.md.

The methods print nothing and leave the caller's session as it is. The jobs run in a separate session of the same
Spark application.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from pipeline.jobs.answers import answers
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from pipeline.jobs.compact import compact
from pipeline.jobs.plan import plan
from pipeline.jobs.replay import replay
from pipeline.jobs.resend import resend_missing
from pipeline.jobs.run import run
from pipeline.jobs.submit import submit
from pipeline.lake.catalogs import prepared
from pipeline.session import private_session
from pipeline.settings import (
    AnswersSettings,
    AuditSettings,
    CollectSettings,
    Common,
    CompactSettings,
    KafkaSettings,
    ReplaySettings,
    RunSettings,
    Source,
    SubmitSettings,
    format_of,
    in_catalog,
)
from pipeline.uris import absolute

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.audit.result import AuditResult
    from pipeline.jobs.answers import AnswerTables
    from pipeline.jobs.collect import Collected
    from pipeline.jobs.plan import Planned
    from pipeline.jobs.replay import Replayed
    from pipeline.jobs.run import RunResult
    from pipeline.jobs.submit import Submitted
    from pipeline.settings import ProgressStyle, TableFormat


class Job:
    """A job: its name, its lake, and how to reach Kafka.

    ``lake`` is a folder or ``catalog.schema``. In the second case, ``files`` is the folder of metadata and checkpoints,
    by default in the folder of the schema. ``kafka`` has the worker's ``KAFKA_*`` variables by name. They default to
    those of the environment. ``kafka_options`` are as ``--kafka-option``. The methods raise
    ``pipeline.errors.JobError`` if the job cannot continue, ``BrokerError`` if Kafka is unreachable, and
    ``SettingsError`` for invalid settings.
    """

    def __init__(
        self,
        spark: SparkSession,
        name: str,
        lake: str,
        *,
        kafka: Mapping[str, str] | None = None,
        table_format: TableFormat = "parquet",
        kafka_options: Mapping[str, str] | None = None,
        files: str | None = None,
        progress: ProgressStyle = "off",
    ) -> None:
        self._spark = private_session(spark)
        self._environ = os.environ if kafka is None else kafka
        self._options = tuple((kafka_options or {}).items())
        root = lake if in_catalog(lake) else absolute(lake)
        given = Common(job=name, lake=root, table_format=table_format, files=files, progress=progress)
        self._paths = prepared(self._spark, given)
        self._common: dict[str, Any] = asdict(self._paths)

    @property
    def paths(self) -> Common:
        """Return the places of the job's tables: ``manifest``, ``bronze``, ``answers``, ``audit``."""
        return self._paths

    def _kafka(self) -> KafkaSettings:
        return KafkaSettings.load(self._environ).with_options(self._options)

    def plan(
        self,
        table: DataFrame | str,
        *,
        id: str,  # noqa: A002 - the option's name
        payload: str,
        deadline: str | None = None,
        parts: int | None = None,
        new_run: bool = False,
    ) -> Planned:
        """Number the rows of a table, or of the table at a path, and write them as the job's manifest.

        ``id``, ``payload`` and ``deadline`` are names of columns.
        """
        source = _source(table, id, payload, deadline, parts)
        return plan(self._spark, self.paths, source, new_run=new_run)

    def submit(self, **options: Any) -> Submitted:
        """Send the planned requests.

        ``options`` are ``semantics``, ``chunk``, ``rate``, ``dry_run``, ``resume`` and ``new_run``.
        """
        return submit(self._spark, SubmitSettings(kafka=self._kafka(), **self._common, **options))

    def resend_missing(self, *, chunk: int = 10_000, rate: float | None = None, dry_run: bool = False) -> Submitted:
        """Send the missing requests of the last audit again. The options mean the same as for ``submit``."""
        options: dict[str, Any] = {"chunk": chunk, "rate": rate, "dry_run": dry_run}
        return resend_missing(self._spark, SubmitSettings(kafka=self._kafka(), **self._common, **options))

    def collect(self, *, stop: Callable[[], bool] | None = None, **options: Any) -> Collected:
        """Collect what is available or, with ``stop``, follow until it returns true. ``options`` as the command's."""
        modes: dict[str, Any] = {"available_now": stop is None, "follow": stop is not None}
        settings = CollectSettings(kafka=self._kafka(), **modes, **self._common, **options)
        return collect(self._spark, settings, stop or _never)

    def answers(self) -> AnswerTables:
        """Write the table of answers."""
        return answers(self._spark, AnswersSettings(kafka=self._kafka(), **self._common))

    def audit(self, **options: Any) -> AuditResult:
        """Audit the job. The result has ``verdict``, ``counts`` and ``evidence``.

        ``options`` are ``html``, ``wait`` in seconds, ``out``, ``after`` and ``follow_ups``.
        """
        return audit(self._spark, AuditSettings(kafka=self._kafka(), **self._common, **options))

    def replay(self, **options: Any) -> Replayed:
        """Send dead letters back. ``options`` are ``where``, ``max_replays``, ``chunk`` and ``dry_run``."""
        return replay(self._spark, ReplaySettings(kafka=self._kafka(), **self._common, **options))

    def compact(self, before: dt.date) -> int:
        """Merge the days before ``before`` (UTC) into few files. Return how many folders became one."""
        return compact(self._spark, CompactSettings(kafka=self._kafka(), before=before, **self._common))

    def run(
        self,
        table: DataFrame | str | None = None,
        *,
        id: str = "id",  # noqa: A002 - the option's name
        payload: str = "payload",
        deadline: str | None = None,
        stop: Callable[[], bool] | None = None,
        **options: Any,
    ) -> RunResult:
        """Submit, follow the answers, write the tables and audit. Without a table, the job must be planned already.

        ``options`` are ``semantics``, ``chunk``, ``rate``, ``new_run``, ``out`` and ``timeout``.
        """
        source = None if table is None else _source(table, id, payload, deadline, None)
        settings = RunSettings(kafka=self._kafka(), source=source, **self._common, **options)
        return run(self._spark, settings, stop or _never)


def _source(table: DataFrame | str, key: str, payload: str, deadline: str | None, parts: int | None) -> Source:
    columns: dict[str, Any] = {"id": key, "payload": payload, "deadline": deadline, "parts": parts}
    if isinstance(table, str):
        return Source(uri=table, format=format_of(table), **columns)
    return Source(frame=table, **columns)


def _never() -> bool:
    return False
