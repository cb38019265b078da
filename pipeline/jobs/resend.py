"""``pipeline submit --resend missing``: send again exactly the requests that an audit found unanswered.

What was sent is bound to the audit, so the command can be repeated: it never sends a request twice. If the first answer
of a request arrives late, the request has two answers, and the next audit reports it.
"""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit.result import Verdict
from pipeline.audit.writer import VERDICT
from pipeline.errors import JobError
from pipeline.jobs.submit import Submitted, task_rate
from pipeline.kafka.sending import Transfer, check_speculation
from pipeline.kafka.topics import Topics
from pipeline.lake.files import Files
from pipeline.lake.manifest import recorded_manifest
from pipeline.lake.schemas import MANIFEST
from pipeline.lake.submission import Submission
from pipeline.lake.tables import READING, read_table
from pipeline.messages.requests import Run, request_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.kafka.topics import Topic
    from pipeline.lake.manifest import Manifest
    from pipeline.settings import SubmitSettings


def resend_missing(spark: SparkSession, settings: SubmitSettings) -> Submitted:
    """Send the missing requests of the job's last audit. JobError if it is undecided or of another run."""
    check_speculation(spark)
    topic = Topics(settings.kafka).get(settings.kafka.request_topic)
    manifest = recorded_manifest(spark, settings)
    if manifest is None:
        raise JobError(f"job {settings.job!r} is not planned: there is no manifest at {settings.manifest}")
    audit = _audit(spark, settings, manifest, topic)
    name = f"resend/{settings.job}/{topic.id}/{manifest.run}/{audit['id']}"
    transfer = Transfer(settings, name, cumulative=True)
    count = int(audit["missing"])
    if settings.dry_run or not count:
        return Submitted(manifest.run, topic.name, count, sum(map(len, transfer.known().values())), 0)
    rows = _missing(spark, settings)
    parts = sorted(row.part for row in rows.select("part").distinct().collect())
    before = sum(map(len, transfer.begin(parts).values()))
    rows_of = functools.partial(request_rows, Run(settings.job, manifest.run), topic.name)
    rate = task_rate(spark, settings, len(parts))
    now = transfer.send(rows, rows_of, parts, title="resend", total=count, rate=rate)
    return Submitted(manifest.run, topic.name, count, before, now - before)


def _audit(spark: SparkSession, settings: SubmitSettings, manifest: Manifest, topic: Topic) -> dict[str, Any]:
    files, path = Files(spark), f"{settings.audit}/{VERDICT}"
    if not files.exists(path):
        raise JobError(
            f"job {settings.job!r} has no audit at {settings.audit}: run pipeline audit first, without --out"
        )
    audit = files.read_json(path)
    if audit["verdict"] == Verdict.UNDECIDED:
        raise JobError(
            f"the audit of job {settings.job!r} is undecided, and requests may still be answered: audit again"
        )
    if audit["run"] != manifest.run:
        raise JobError(f"the audit is of run {audit['run']}, and the manifest of run {manifest.run}: audit again")
    submission = Submission.read(spark, settings)
    if submission is None or submission.requests.get("id") != topic.id:
        raise JobError(f"the requests were not submitted to this topic {topic.name}: run pipeline submit")
    return audit


def _missing(spark: SparkSession, settings: SubmitSettings) -> DataFrame:
    """Return the missing rows of the manifest, as ``send_table`` takes them."""
    missing = spark.read.options(**READING).parquet(f"{settings.audit}/missing")
    manifest = read_table(spark, settings.table("manifest"), MANIFEST)
    found = manifest.join(missing.select(F.col("sequence").cast("int")), on="sequence", how="left_semi")
    return found.select("part", F.col("sequence").alias("number"), "sequence", "payload", "deadline")
