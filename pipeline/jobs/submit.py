"""``pipeline submit``: send the planned requests to the request topic, each exactly once, even if it is repeated."""

from __future__ import annotations

import functools
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.exactly_once.progress_log import TIMEOUT
from pipeline.exactly_once.runs import Announced, announce, announced, submit_name
from pipeline.jobs.plan import plan
from pipeline.kafka.connector import read_batch, write_records
from pipeline.kafka.records import request_records, throttled
from pipeline.kafka.sending import Transfer, check_speculation, create_progress_log
from pipeline.kafka.topics import Topics
from pipeline.lake.manifest import recorded_manifest
from pipeline.lake.schemas import MANIFEST
from pipeline.lake.spark_versions import try_int
from pipeline.lake.submission import Submission
from pipeline.lake.tables import read_table
from pipeline.messages.keys import PATTERN
from pipeline.messages.requests import Run, request_rows
from pipeline.progress import meter, watched
from worker.codec import RUN_HEADER
from worker.core.deadline import Deadline

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.exactly_once.progress_log import ProgressLog
    from pipeline.exactly_once.ranges import Ranges
    from pipeline.kafka.topics import Topic
    from pipeline.lake.manifest import Manifest
    from pipeline.settings import KafkaSettings, SubmitSettings


class Submitted(NamedTuple):
    """The result of ``submit``, in requests."""

    run: str
    topic: str
    planned: int
    already_sent: int
    sent: int


def submit(spark: SparkSession, settings: SubmitSettings) -> Submitted:
    """Submit, and plan first if necessary. Raise JobError or BrokerError with the obstacle."""
    check_speculation(spark)
    topic = Topics(settings.kafka).get(settings.kafka.request_topic)
    manifest = _planned(spark, settings)
    transfer = Transfer(settings, submit_name(settings.job, topic.id, manifest.run), cumulative=True)
    begun = Submission.read(spark, settings)
    _check_semantics(settings, manifest, begun)
    run = _check_run(settings, manifest, topic, transfer.log, begun)
    if not settings.dry_run:
        requests = {"topic": topic.name, "id": topic.id}
        submission = Submission(run.id, settings.semantics, requests, run.topic_ids, run.ends, settings.kafka.ack_topic)
        submission.write(spark, settings)
    sends = _exactly_once if settings.semantics == "exactly-once" else _at_least_once
    before, now = sends(spark, settings, manifest, topic, transfer)
    return Submitted(manifest.run, topic.name, manifest.rows, before, now - before)


def _planned(spark: SparkSession, settings: SubmitSettings) -> Manifest:
    """Return the manifest's metadata. With ``--input``, plan it now, or check that it is the planned table."""
    if settings.source is not None:
        write = not settings.dry_run
        return plan(spark, settings, settings.source, write=write, new_run=settings.new_run).manifest
    manifest = recorded_manifest(spark, settings)
    if manifest is None:
        raise JobError(
            f"job {settings.job!r} is not planned: there is no manifest at {settings.manifest}; "
            "run pipeline plan first, or give --input, --id and --payload"
        )
    return manifest


def _check_run(
    settings: SubmitSettings, manifest: Manifest, topic: Topic, log: ProgressLog, begun: Submission | None
) -> Announced:
    """Return the announced run, or announce it.

    JobError if other data was submitted under this job's name, or if the run was ``begun`` and is announced no more.
    """
    if settings.dry_run and Topics(settings.kafka).find(log.topic) is None:
        _check_lost(settings, manifest, topic, log, begun)
        return Announced(manifest.run)
    if not settings.dry_run:
        create_progress_log(settings.kafka)
    known = {run.id: run for run in announced(log, settings.job, topic.id)}
    if manifest.run not in known:  # an open transaction may hide it
        known = {run.id: run for run in announced(log, settings.job, topic.id, all_of_them=True)}
    if manifest.run in known:  # even if other runs began after it
        return known[manifest.run]
    _check_lost(settings, manifest, topic, log, begun)
    foreign = [run for run in known.values() if run.id not in manifest.replaces]
    if foreign and not settings.new_run:
        raise JobError(
            f"job {settings.job!r} was submitted to {topic.name} as {foreign[-1]}, and this manifest is run "
            f"{manifest.run or '(unnamed)'} ({manifest.rows} requests, planned {manifest.created}): give this data "
            "another --job, or begin a new run of the job with --new-run"
        )
    if not manifest.run:
        return Announced("")
    run = _described(settings, manifest)
    if not settings.dry_run:
        announce(log, settings.job, topic.id, run, frozenset(known))
    return run


def _check_lost(
    settings: SubmitSettings, manifest: Manifest, topic: Topic, log: ProgressLog, begun: Submission | None
) -> None:
    """Raise JobError if the run was begun, though the progress log has no record of it: all would be sent again.

    A submit announces the run before it records in the lake that it begins. Earlier versions did not announce runs.
    """
    if begun is None or not manifest.run or begun.run != manifest.run or begun.requests.get("id") != topic.id:
        return
    raise JobError(
        f"job {settings.job!r}: run {manifest.run} was submitted, and {log.topic} has lost its records, which say what "
        "was sent: audit what there is, or submit the table under another --job"
    )


def _described(settings: SubmitSettings, manifest: Manifest) -> Announced:
    """Return a run that has sent nothing yet, with the earliest place of its answers, where the audit begins."""
    topics = Topics(settings.kafka)
    names = (settings.kafka.ack_topic, settings.kafka.dead_letter_topic)
    answers = [topic for name in names if (topic := topics.find(name)) is not None]
    ends = {topic.name: {p: span.high for p, span in topic.spans.items()} for topic in answers}
    ids = {topic.name: topic.id for topic in answers}
    return Announced(manifest.run, manifest.rows, manifest.created, ids, ends)


def _check_semantics(settings: SubmitSettings, manifest: Manifest, begun: Submission | None) -> None:
    """Raise JobError if the job was begun the other way: neither knows what the other has sent."""
    if begun is not None and begun.run == manifest.run and begun.semantics != settings.semantics:
        raise JobError(f"job {settings.job!r} was begun with --semantics {begun.semantics}: continue with that")


def _check_begun(settings: SubmitSettings, there: int, rows: int) -> None:
    if there and not settings.resume:
        raise JobError(
            f"{there} of the {rows} requests of job {settings.job!r} are in the topic already: "
            "leave out --no-resume to send the others"
        )


def _manifest(spark: SparkSession, settings: SubmitSettings) -> DataFrame:
    return read_table(spark, settings.table("manifest"), MANIFEST)


def task_rate(spark: SparkSession, settings: SubmitSettings, tasks: int) -> float | None:
    """Return the rate of each of the tasks that run at the same time."""
    return settings.rate and settings.rate / max(1, min(tasks, spark.sparkContext.defaultParallelism))


# ---------------------------------------------------------------- exactly once


def _exactly_once(
    spark: SparkSession, settings: SubmitSettings, manifest: Manifest, topic: Topic, transfer: Transfer
) -> tuple[int, int]:
    known = transfer.known()
    if settings.dry_run:
        return _total(known), _total(known)
    _check_begun(settings, _total(known), manifest.rows)  # before another submit of the job is fenced
    open_parts = unfinished(manifest, known)
    before = now = _total(transfer.begin(open_parts))
    _check_begun(settings, before, manifest.rows)
    if open_parts:
        rows = _manifest(spark, settings).where(F.col("part").isin(open_parts))
        table = rows.select("part", F.col("sequence").alias("number"), "sequence", "payload", "deadline")
        rows_of = functools.partial(request_rows, Run(settings.job, manifest.run), topic.name)
        rate = task_rate(spark, settings, len(open_parts))
        now = transfer.send(table, rows_of, open_parts, title="submit", total=manifest.rows, rate=rate)
    if now != manifest.rows:
        raise JobError(f"only {now} of {manifest.rows} requests are in {topic.name}: run the same command again")
    return before, now


def unfinished(manifest: Manifest, there: dict[int, Ranges]) -> list[int]:
    """Return the parts that are not sent completely."""
    starts = [-(-part * manifest.rows // manifest.parts) for part in range(manifest.parts + 1)]
    sizes = {part: end - start for part, (start, end) in enumerate(itertools.pairwise(starts))}
    return [part for part, size in sizes.items() if size > len(there.get(part, ()))]


def _total(there: dict[int, Ranges]) -> int:
    return sum(map(len, there.values()))


# ---------------------------------------------------------------- at least once


def _at_least_once(
    spark: SparkSession, settings: SubmitSettings, manifest: Manifest, topic: Topic, _transfer: Transfer
) -> tuple[int, int]:
    kafka = settings.kafka
    _wait_until_decided(kafka)
    sent = sent_sequences(read_batch(spark, kafka, [topic.name]), Run(settings.job, manifest.run)).cache()
    there = sent.count()
    if settings.dry_run:
        return there, there
    _check_begun(settings, there, manifest.rows)
    table = _manifest(spark, settings)
    if (rows := table.count()) != manifest.rows:
        raise JobError(
            f"the manifest has {rows} rows, and {manifest.rows} were planned: it is damaged; nothing was sent. "
            "Restore it, or plan the table again under another --job"
        )
    rest = remaining(table, sent)
    rate = task_rate(spark, settings, rest.rdd.getNumPartitions()) if settings.rate else None
    start = _written(kafka)
    with (
        meter(settings.progress, f"submit {settings.job}", manifest.rows) as shown,
        watched(shown, lambda: there + _written(kafka) - start),
    ):
        write_records(throttled(request_records(rest, Run(settings.job, manifest.run)), rate), kafka, topic.name)
    return there, manifest.rows


def sent_sequences(records: DataFrame, run: Run) -> DataFrame:
    """Return ``sequence`` of the run's requests among the records of a topic, each once."""
    key = F.col("key").cast("string")
    of_job = F.regexp_extract(key, PATTERN.replace("?P<", "?<"), 1) == run.job
    named = F.filter(F.coalesce("headers", F.array()), lambda header: header["key"] == RUN_HEADER)
    of_run = F.try_element_at(F.transform(named, lambda header: header["value"].cast("string")), F.lit(-1))
    ours = of_job & (of_run == run.id if run.id else of_run.isNull())
    return records.where(ours).select(try_int(F.substring_index(key, "/", -1)).alias("sequence")).distinct()


def remaining(manifest: DataFrame, sent: DataFrame) -> DataFrame:
    """Return the planned requests that were not sent."""
    return manifest.join(sent, on="sequence", how="left_anti").select(*MANIFEST.fieldNames())


def _written(kafka: KafkaSettings) -> int:
    return sum(span.high for span in Topics(kafka).get(kafka.request_topic).spans.values())


def _wait_until_decided(kafka: KafkaSettings) -> None:
    """Wait for open transactions. The requests behind one are invisible, and would be sent again."""
    ends = {number: span.high for number, span in Topics(kafka).get(kafka.request_topic).spans.items()}
    deadline = Deadline.after(TIMEOUT, time.monotonic())
    while True:
        now = Topics(kafka).get(kafka.request_topic).spans
        if all(now[number].stable >= end for number, end in ends.items()):
            return
        if deadline.passed(time.monotonic()):
            raise JobError(
                f"a transaction in {kafka.request_topic} stays open: the records behind it cannot be read yet"
            )
        time.sleep(0.5)
