"""``pipeline submit``: the planned requests go to the request topic, each exactly once, however often it is begun."""

from __future__ import annotations

import functools
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.codec import headers_of, keys, request_records, values
from pipeline.errors import JobError
from pipeline.files import Files
from pipeline.kafka_io import read_batch, write_records
from pipeline.keys import PATTERN
from pipeline.ledger import PATIENCE
from pipeline.pacing import paced
from pipeline.plan import noted_manifest, plan
from pipeline.progress import meter, report, watched
from pipeline.schemas import MANIFEST
from pipeline.sending import Sending, create_ledger, followed, ledger_of, producer_properties, send_table, settle
from pipeline.session import build_session
from pipeline.table_io import read_table
from pipeline.topics import Topics
from worker.core.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.plan import Manifest
    from pipeline.ranges import Ranges
    from pipeline.settings import KafkaSettings, SubmitSettings
    from pipeline.topics import Topic
    from pipeline.transact import Headers, Row

_SUBMIT = "_submit.json"  # beside the manifest: how its submit was begun


class Submitted(NamedTuple):
    """How many requests of the job are in the topic now, and how many were before."""

    before: int
    now: int


def run(settings: SubmitSettings) -> None:
    """Plan if need be, and submit. JobError and BrokerError say what is in the way."""
    began = time.monotonic()
    spark = build_session(f"submit {settings.job}", master=settings.master, table_format=settings.table_format)
    topic = Topics(settings.kafka).get(settings.kafka.request_topic)
    noted = _planned(spark, settings)
    sends = _exactly_once if settings.semantics == "exactly-once" else _at_least_once
    _check_semantics(spark, settings)
    done = sends(spark, settings, noted, topic)
    report(
        "to submit" if settings.dry_run else "submitted",
        job=settings.job,
        topic=topic.name,
        semantics=settings.semantics,
        planned=noted.rows,
        there=done.before,
        **({"missing": noted.rows - done.before} if settings.dry_run else {"sent": done.now - done.before}),
        seconds=round(time.monotonic() - began, 1),
    )


def _planned(spark: SparkSession, settings: SubmitSettings) -> Manifest:
    """The manifest's note; with ``--input``, the input must be what was planned, or is planned now."""
    if settings.source is not None:
        return plan(spark, settings, settings.source, write=not settings.dry_run)[0]
    noted = noted_manifest(spark, settings)
    if noted is None:
        raise JobError(
            f"job {settings.job!r} is not planned: there is no manifest at {settings.manifest}; "
            "run pipeline plan first, or give --input, --id and --payload"
        )
    return noted


def _check_semantics(spark: SparkSession, settings: SubmitSettings) -> None:
    """Neither way of sending knows what the other has sent."""
    files, path = Files(spark), f"{settings.manifest}/{_SUBMIT}"
    begun = files.read_json(path)["semantics"] if files.exists(path) else None
    if begun not in {None, settings.semantics}:
        raise JobError(f"job {settings.job!r} was begun with --semantics {begun}: go on with that")
    if begun is None and not settings.dry_run:
        files.write_json(path, {"semantics": settings.semantics})


def _check_begun(settings: SubmitSettings, there: int, rows: int) -> None:
    if there and not settings.resume:
        raise JobError(
            f"{there} of the {rows} requests of job {settings.job!r} are in the topic already: "
            "leave out --no-resume to send the others"
        )


def _manifest(spark: SparkSession, settings: SubmitSettings) -> DataFrame:
    return read_table(spark, settings.manifest, settings.table_format, MANIFEST)


def _task_rate(spark: SparkSession, settings: SubmitSettings, tasks: int) -> float | None:
    """The share of one of the tasks that run at the same time."""
    return settings.rate and settings.rate / max(1, min(tasks, spark.sparkContext.defaultParallelism))


# ---------------------------------------------------------------- exactly once


def _exactly_once(spark: SparkSession, settings: SubmitSettings, noted: Manifest, topic: Topic) -> Submitted:
    kafka = settings.kafka
    # With the topic's id: a topic that was deleted and made anew has none of the requests.
    ledger = ledger_of(kafka, f"submit/{settings.job}/{topic.id}")
    if settings.dry_run:
        known = _total(ledger.peek()) if Topics(kafka).find(ledger.topic) else 0
        return Submitted(known, known)
    create_ledger(kafka)
    there = ledger.peek()
    _check_begun(settings, _total(there), noted.rows)  # before another submit of the job is cut off
    open_parts = unfinished(noted, there)
    sending = Sending(
        producer_properties(kafka),
        ledger,
        settings.chunk,
        cumulative=True,
        rate=_task_rate(spark, settings, len(open_parts)),
    )
    before = _total(settle(sending, open_parts))
    _check_begun(settings, before, noted.rows)
    if open_parts:
        rows = _manifest(spark, settings).where(F.col("part").isin(open_parts))
        table = rows.select("part", F.col("sequence").alias("number"), "sequence", "payload", "deadline")
        with (
            meter(settings.progress, f"submit {settings.job}", noted.rows) as shown,
            followed(shown, ledger, noted.rows),
        ):
            rows_of = functools.partial(request_rows, settings.job, topic.name)
            send_table(table, rows_of, sending, open_parts)
    now = _total(ledger.read())
    if now != noted.rows:
        raise JobError(f"only {now} of {noted.rows} requests are in {topic.name}: run the same command again")
    return Submitted(before, now)


def unfinished(noted: Manifest, there: dict[int, Ranges]) -> list[int]:
    """The parts of which not everything was sent."""
    starts = [-(-part * noted.rows // noted.parts) for part in range(noted.parts + 1)]
    sizes = {part: end - start for part, (start, end) in enumerate(itertools.pairwise(starts))}
    return [part for part, size in sizes.items() if size > len(there.get(part, ()))]


def _total(there: dict[int, Ranges]) -> int:
    return sum(map(len, there.values()))


def request_rows(job: str, topic: str, batch: pa.RecordBatch) -> Iterator[Row]:
    """The rows to send of a batch of planned requests."""
    deadlines = batch.column("deadline")
    headers: Iterable[Headers] = itertools.repeat(headers_of(job, None))
    if deadlines.null_count < batch.num_rows:
        headers = [headers_of(job, deadline) for deadline in deadlines.to_pylist()]
    numbers = (batch.column(name).to_pylist() for name in ("part", "number"))
    return zip(
        *numbers,
        itertools.repeat(topic),
        keys(job, batch).to_pylist(),
        values(batch).to_pylist(),
        headers,
        strict=False,
    )


# ---------------------------------------------------------------- at least once


def _at_least_once(spark: SparkSession, settings: SubmitSettings, noted: Manifest, topic: Topic) -> Submitted:
    kafka = settings.kafka
    _wait_until_decided(kafka)
    sent = sent_sequences(read_batch(spark, kafka, [topic.name]), settings.job).cache()
    there = sent.count()
    if settings.dry_run:
        return Submitted(there, there)
    _check_begun(settings, there, noted.rows)
    rest = remaining(_manifest(spark, settings), sent)
    rate = _task_rate(spark, settings, rest.rdd.getNumPartitions()) if settings.rate else None
    start = _written(kafka)
    with (
        meter(settings.progress, f"submit {settings.job}", noted.rows) as shown,
        watched(shown, lambda: there + _written(kafka) - start),
    ):
        write_records(paced(request_records(rest, settings.job), rate), kafka, topic.name)
    return Submitted(there, noted.rows)


def sent_sequences(records: DataFrame, job: str) -> DataFrame:
    """``sequence`` of the job's requests among the records of a topic, each once."""
    key = F.col("key").try_cast("string")
    of_job = F.regexp_extract(key, PATTERN.replace("?P<", "?<"), 1) == job
    return records.where(of_job).select(F.substring_index(key, "/", -1).try_cast("int").alias("sequence")).distinct()


def remaining(manifest: DataFrame, sent: DataFrame) -> DataFrame:
    """The planned requests that were not sent."""
    return manifest.join(sent, on="sequence", how="left_anti").select(*MANIFEST.fieldNames())


def _written(kafka: KafkaSettings) -> int:
    return sum(span.high for span in Topics(kafka).get(kafka.request_topic).spans.values())


def _wait_until_decided(kafka: KafkaSettings) -> None:
    """What stands behind an open transaction cannot be seen, and would be sent again."""
    ends = {number: span.high for number, span in Topics(kafka).get(kafka.request_topic).spans.items()}
    deadline = Deadline.after(PATIENCE, time.monotonic())
    while True:
        now = Topics(kafka).get(kafka.request_topic).spans
        if all(now[number].stable >= end for number, end in ends.items()):
            return
        if deadline.passed(time.monotonic()):
            raise JobError(f"a transaction in {kafka.request_topic} stays open: what is behind it cannot be seen yet")
        time.sleep(0.5)
