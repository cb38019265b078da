"""Submits to a real topic: each request arrives once, even after crashes and beside open transactions."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import BrokerError, JobError, format_error
from pipeline.exactly_once.channel import KafkaChannel, fence
from pipeline.exactly_once.progress_log import ProgressLog
from pipeline.exactly_once.ranges import Ranges
from pipeline.exactly_once.runs import submit_name
from pipeline.exactly_once.sender import Sender
from pipeline.exactly_once.turns import take_turn, write_record
from pipeline.jobs import submit
from pipeline.kafka.sending import create_progress_log, producer_properties, task_each
from pipeline.kafka.topics import Topics
from pipeline.lake.schemas import MANIFEST, OUTGOING, RECORD
from pipeline.lake.tables import local_dataframe
from pipeline.messages.requests import Run, encode_requests, request_rows
from tests.kafka_broker import delete_topic, recreate_topic
from tests.spark.support.requests import open_transaction, produce
from tests.spark.support.site import JobSite
from worker.codec import Request
from worker.kafka.cluster import Cluster
from worker.testing.murmur2 import partition_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> JobSite:
    return JobSite(broker, tmp_path)


def progress_log_of(site: JobSite) -> ProgressLog:
    topic = Topics(site.kafka).get(site.requests)
    return ProgressLog(
        site.kafka.client_properties(), site.kafka.progress_topic, submit_name("j", topic.id, site.run())
    )


def channel(site: JobSite, part: int) -> KafkaChannel:
    return KafkaChannel(producer_properties(site.kafka), progress_log_of(site), part, cumulative=True)


def row(site: JobSite, part: int, sequence: int) -> Any:
    return part, sequence, site.requests, f"j/{sequence:010d}".encode(), b"\x08\x01", [("job", b"j")]


# ---------------------------------------------------------------- exactly once


def test_each_request_is_in_the_topic_once_and_follows_the_contract(spark: SparkSession, site: JobSite) -> None:
    deadlines = [None if n % 2 else "2026-01-01T00:00:00Z" for n in range(3_000)]
    source = site.source(3_000, 4, deadline=deadlines)
    assert submit.submit(spark, site.submit(source=source, chunk=300)).sent == 3_000
    run = site.run().encode()
    found = site.sent()
    assert sorted(one.key or b"" for one in found) == [f"j/{n:010d}".encode() for n in range(3_000)]
    for one in found:
        sequence = int((one.key or b"")[-10:])
        assert Request.FromString(one.value or b"\x08\x00") == Request(sequence=sequence, payload=f"p{sequence}")
        assert one.partition == partition_of(one.key or b"", 4), "not where Kafka's Java clients put this key"
        assert one.headers == {
            "job": b"j",
            "x-run": run,
            **({} if sequence % 2 else {"x-deadline": b"2026-01-01T00:00:00Z"}),
        }

    done = submit.submit(spark, site.submit(source=source))
    assert done == submit.Submitted(site.run(), site.requests, 3_000, already_sent=3_000, sent=0)
    assert len(site.sent()) == 3_000


def test_a_submit_completes_the_parts_of_a_submit_that_died(spark: SparkSession, site: JobSite) -> None:
    """One part is partly sent. Another has an open transaction with records in the topic, which no process ends."""
    site.plan(spark, 1_000, parts=4)
    create_progress_log(site.kafka)
    half = channel(site, 0)
    half.send([row(site, 0, sequence) for sequence in range(100)])
    half.close()
    left = channel(site, 2)
    left._producer.begin_transaction()
    for sequence in range(500, 550):
        left._producer.produce(site.requests, b"\x08\x01", f"j/{sequence:010d}".encode())
    left._producer.produce(left._progress_log.topic, b"500-549", left._progress_log.key(2), partition=left._place)
    left._producer.flush()
    began = time.monotonic()
    done = submit.submit(spark, site.submit())
    assert time.monotonic() - began < 50, "waited for the transaction to time out instead of ending it"
    assert site.sequences() == list(range(1_000))
    assert done.already_sent == 100
    with pytest.raises(JobError, match="part 2 was taken over"):
        left.send([row(site, 2, 500)])
    assert site.sequences() == list(range(1_000))


def test_a_task_of_an_earlier_submit_does_not_fence_a_later_submit(site: JobSite) -> None:
    """Spark retries a fenced task. Without a check, it would fence the later submit, and both would fail in turn."""
    create_progress_log(site.kafka)
    log, properties = progress_log_of(site), producer_properties(site.kafka)
    earlier = Sender(properties, log, chunk=10, cumulative=True, turn=take_turn(log))
    fenced = earlier.channel(0)
    later = Sender(properties, log, chunk=10, cumulative=True, turn=take_turn(log)).channel(0)
    with pytest.raises(JobError, match="part 0 was taken over"):
        fenced.send([row(site, 0, 1)])
    with pytest.raises(JobError, match="another submit or replay of the same job is running"):
        earlier.channel(0)
    later.send([row(site, 0, 1)])
    assert site.sequences() == [1]


def test_a_committed_chunk_behind_another_open_transaction_is_seen(site: JobSite) -> None:
    """Up to the last stable offset, the progress log seems empty. Without reading on, the chunk would be sent again."""
    create_progress_log(site.kafka)
    blocking = open_transaction(site.bootstrap, site.kafka.progress_topic, f"blocking-{site.requests}")
    first = channel_beside(site, blocking)
    assert first == Ranges(range(10))


def channel_beside(site: JobSite, blocking: Any) -> Ranges:
    progress_log = progress_log_of(site)
    writer = KafkaChannel.__new__(KafkaChannel)  # without __init__, which would wait for the other transaction
    writer._progress_log, writer._part, writer._cumulative, writer.sent = progress_log, 0, True, Ranges()
    writer._place = 0
    writer._producer = fence(producer_properties(site.kafka), progress_log, 0)
    writer.send([row(site, 0, sequence) for sequence in range(10)])
    threading.Timer(2.0, blocking.abort_transaction).start()
    return channel(site, 0).sent


def test_a_part_does_not_wait_for_the_open_transaction_of_another_part(site: JobSite) -> None:
    """Spark may start a new task before it retries those that died and left their transactions open."""
    create_progress_log(site.kafka)
    blocking = open_transaction(site.bootstrap, site.kafka.progress_topic, f"blocking-{site.requests}")
    began = time.monotonic()
    beside = channel(site, 1)
    beside.send([row(site, 1, 7)])
    assert progress_log_of(site).peek() == {1: Ranges([7])}
    assert time.monotonic() - began < 30
    blocking.abort_transaction()


def test_a_submit_continues_with_a_progress_log_of_one_partition(spark: SparkSession, site: JobSite) -> None:
    """Earlier versions created the progress log with one partition."""
    site.plan(spark, 400, parts=3)
    Cluster(site.kafka.client_properties()).create(site.kafka.progress_topic, 1, {"cleanup.policy": "compact"})
    half = channel(site, 2)
    half.send([row(site, 2, sequence) for sequence in range(300, 350)])
    half.close()
    submit.submit(spark, site.submit())
    assert site.sequences() == list(range(400))


def test_a_retried_task_sends_no_request_twice(
    spark: SparkSession, site: JobSite, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first attempt of each task dies after its first commit."""
    site.plan(spark, 400, parts=2)
    marks = tmp_path / "marks"
    marks.mkdir()
    whole = request_rows

    def dying(run: Run, topic: str, batch: pa.RecordBatch) -> Any:  # local, so that Spark sends its code to the task
        for number, one in enumerate(whole(run, topic, batch)):
            mark = marks / str(one[0])
            if number == 120 and not mark.exists():
                mark.touch()
                raise RuntimeError("the task dies")
            yield one

    monkeypatch.setattr(submit, "request_rows", dying)
    submit.submit(spark, site.submit(chunk=50))
    assert site.sequences() == list(range(400))
    assert len(list(marks.iterdir())) == 2


@pytest.mark.parametrize("parts", [[0], [3, 7, 50], list(range(40))])
def test_each_part_has_its_own_task(spark: SparkSession, parts: list[int]) -> None:
    """Otherwise a retried task would wait for the transaction that it left open in another of its parts."""
    part = F.get(F.lit(parts), (F.col("id") % len(parts)).cast("int"))
    table = spark.range(400).select(part.alias("part"), F.col("id").alias("number"))
    found = task_each(table, parts).select("part", F.spark_partition_id().alias("task")).distinct().collect()
    assert sorted(row.part for row in found) == parts
    assert sorted(row.task for row in found) == list(range(len(parts)))


def test_all_requests_are_sent_again_to_a_recreated_topic(spark: SparkSession, site: JobSite) -> None:
    site.plan(spark, 50)
    submit.submit(spark, site.submit())
    recreate_topic(site.bootstrap, site.requests, 4)
    submit.submit(spark, site.submit())
    assert site.sequences() == list(range(50))


def test_a_submit_keeps_the_given_rate(spark: SparkSession, site: JobSite) -> None:
    site.plan(spark, 120, parts=2)
    began = time.monotonic()
    submit.submit(spark, site.submit(rate=40.0))
    assert time.monotonic() - began > 120 / 40 - 1.1  # it does not wait after the rows of the last second
    assert site.sequences() == list(range(120))


def test_the_part_of_a_request_that_is_too_large_for_the_topic_is_named(spark: SparkSession, site: JobSite) -> None:
    site.plan(spark, 3, payload=["a", "x" * 2_000_000, "b"])
    with pytest.raises(Exception, match=r"(?i)too large") as caught:
        submit.submit(spark, site.submit())
    assert format_error(caught.value) == ["part 0 cannot be sent: Broker: Message size too large"]
    assert site.sent() == []


def test_the_reason_for_the_first_refusal_is_named(site: JobSite) -> None:
    """After some refused batches, the client refuses records itself, and gives no reason for a single record."""
    create_progress_log(site.kafka)
    part, sequence, topic, key, _, headers = row(site, 0, 1)
    rows = [row(site, 0, 0), (part, sequence, topic, key, b"x" * 2_000_000, headers), row(site, 0, 2)]
    for number in range(8):
        producing = channel(site, number)
        with pytest.raises(BrokerError, match=f"^part {number} cannot be sent: Broker: Message size too large$"):
            producing.send(rows)
        producing.close()


# ---------------------------------------------------------------- dry runs, resumes, mistakes


def test_a_dry_run_only_reports_the_requests_to_send(spark: SparkSession, site: JobSite) -> None:
    done = submit.submit(spark, site.submit(source=site.source(20), dry_run=True))
    assert (done.planned, done.already_sent) == (20, 0)
    assert Topics(site.kafka).find(site.kafka.progress_topic) is None
    with pytest.raises(JobError, match="job 'j' is not planned"):
        submit.submit(spark, site.submit())


def test_no_resume_refuses_a_job_whose_submit_has_begun(spark: SparkSession, site: JobSite) -> None:
    site.plan(spark, 20)
    submit.submit(spark, site.submit(resume=False))
    with pytest.raises(JobError, match="20 of the 20 requests of job 'j' are in the topic already"):
        submit.submit(spark, site.submit(resume=False))


def test_a_chunk_that_fills_the_queue_of_the_client_is_sent(spark: SparkSession, site: JobSite) -> None:
    """By default, the queue holds 100,000 records: a chunk of that size, but not its record in the progress log."""
    site.plan(spark, 3)
    create_progress_log(site.kafka)
    properties = producer_properties(site.kafka) | {"queue.buffering.max.messages": 3}
    full = KafkaChannel(properties, progress_log_of(site), 0, cumulative=True)
    full.send([row(site, 0, number) for number in range(3)])
    full.close()
    assert len(site.sent()) == 3
    assert channel(site, 0).sent == Ranges(range(3))


@pytest.mark.parametrize("semantics", ["exactly-once", "at-least-once"])
def test_other_data_under_the_same_job_name_is_an_error_without_new_run(
    spark: SparkSession, site: JobSite, tmp_path: Path, semantics: Any
) -> None:
    """The other data is in another lake, which has no trace of the first run. The topic has one."""
    submit.submit(spark, site.submit(source=site.source(20), semantics=semantics))
    first, other = site.run(), replace(site.submit(semantics=semantics), lake=str(tmp_path / "other"))
    changed = site.source(20, payload=[f"other {n}" for n in range(20)])
    with pytest.raises(JobError, match=f"was submitted to {site.requests} as run {first}.*--new-run"):
        submit.submit(spark, replace(other, source=changed))
    assert len(site.sent()) == 20
    done = submit.submit(spark, replace(other, source=changed, new_run=True))
    assert (done.sent, done.run != first) == (20, True)
    assert submit.submit(spark, other).already_sent == 20
    headers = [one.headers["x-run"] for one in site.sent()]
    assert (headers.count(first.encode()), headers.count(done.run.encode())) == (20, 20)
    assert submit.submit(spark, site.submit(semantics=semantics)).already_sent == 20


def test_requests_that_an_earlier_version_submitted_count_as_another_run(spark: SparkSession, site: JobSite) -> None:
    create_progress_log(site.kafka)
    before = channel(site, 0)
    before.send([row(site, 0, sequence) for sequence in range(5)])
    before.close()
    with pytest.raises(JobError, match="a run that an earlier version of pipeline submitted"):
        submit.submit(spark, site.submit(source=site.source(5)))


def test_exactly_once_and_at_least_once_are_not_mixed_in_a_run(spark: SparkSession, site: JobSite) -> None:
    site.plan(spark, 20)
    submit.submit(spark, site.submit())
    with pytest.raises(JobError, match="begun with --semantics exactly-once"):
        submit.submit(spark, site.submit(semantics="at-least-once"))
    assert len(site.sent()) == 20


def test_a_missing_topic_is_an_error_before_a_submit_does_anything(spark: SparkSession, site: JobSite) -> None:
    site.environment["KAFKA_REQUEST_TOPIC"] = "no-such-topic"
    kafka = type(site.kafka).load(site.environment)
    with pytest.raises(BrokerError, match="there is no topic 'no-such-topic'"):
        submit.submit(spark, site.submit(kafka=kafka, source=site.source(3)))


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_progress_log_whose_records_expire_is_refused(spark: SparkSession, site: JobSite, policy: str) -> None:
    site.plan(spark, 20)
    Cluster(site.kafka.client_properties()).create(site.kafka.progress_topic, 1, {"cleanup.policy": policy})
    for settings in (site.submit(), site.submit(dry_run=True)):
        with pytest.raises(
            JobError, match=f"{site.requests}.submitted has cleanup.policy={policy}, .* set it to compact"
        ):
            submit.submit(spark, settings)
    assert site.sent() == []


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_run_that_the_progress_log_has_lost_is_not_sent_again(
    spark: SparkSession, site: JobSite, dry_run: bool
) -> None:
    site.plan(spark, 20)
    submit.submit(spark, site.submit())
    delete_topic(site.bootstrap, site.kafka.progress_topic)
    with pytest.raises(JobError, match=f"run {site.run()} was submitted, and .*.submitted has lost its records"):
        submit.submit(spark, site.submit(dry_run=dry_run))
    assert len(site.sent()) == 20


def test_a_run_whose_announcement_is_hidden_is_continued(spark: SparkSession, site: JobSite) -> None:
    """An open transaction of another job hides the announcement for a while."""
    site.plan(spark, 20)
    create_progress_log(site.kafka)
    log = progress_log_of(site)
    blocking = open_transaction(site.bootstrap, log.topic, f"blocking-{site.requests}")
    content = {"rows": 20, "created": "", "topic_ids": {}, "ends": {}}
    topic = Topics(site.kafka).get(site.requests)
    write_record(log, f"submit/j/{topic.id}/run/{site.run()}".encode(), json.dumps(content).encode())
    ending = threading.Timer(3, blocking.abort_transaction)
    ending.start()
    assert submit.submit(spark, site.submit()).sent == 20
    ending.join()


# ---------------------------------------------------------------- at least once


def test_at_least_once_sends_the_missing_requests(spark: SparkSession, site: JobSite) -> None:
    site.plan(spark, 500)
    headers: list[Any] = [("x-run", site.run().encode())]
    there: list[Any] = [(f"j/{n:010d}".encode(), b"\x08\x01", headers) for n in range(0, 500, 5)]
    others: list[Any] = [(key, b"x", []) for key in (b"k/0000000001", b"j/1", b"\xff\xfe", b"xj/0000000002")]
    produce(site.bootstrap, site.requests, [*there, *others, (None, b"x", [])])
    done = submit.submit(spark, site.submit(semantics="at-least-once", rate=10_000.0))
    assert (done.already_sent, done.sent) == (100, 400)
    mine = [one for one in site.sent() if (one.key or b"").startswith(b"j/0")]
    assert sorted(one.key or b"" for one in mine) == [f"j/{n:010d}".encode() for n in range(500)]
    for one in mine:
        assert one.partition == partition_of(one.key or b"", 4)
    assert {one.headers.get("job") for one in mine if int((one.key or b"")[-10:]) % 5} == {b"j"}
    assert submit.submit(spark, site.submit(semantics="at-least-once")).sent == 0


def test_at_least_once_sends_nothing_of_a_damaged_manifest(spark: SparkSession, site: JobSite) -> None:
    """With exactly-once, the progress log shows after the submit that requests are missing."""
    site.plan(spark, 500, parts=4)
    settings = site.submit(semantics="at-least-once")
    largest = max(Path(settings.manifest).glob("part-*.parquet"), key=lambda file: file.stat().st_size)
    largest.unlink()
    with pytest.raises(JobError, match=r"the manifest has \d+ rows, and 500 were planned"):
        submit.submit(spark, settings)
    assert site.sent() == []


def test_sent_sequences_are_those_of_the_job(spark: SparkSession) -> None:
    keys = [b"j/0000000001", b"j/0000000001", b"j/0000000002", b"k/0000000003", b"j/4", b"\xff", None, b"j/9999999999"]
    records = local_dataframe(spark, [(key, None, "t", 0, n, None, None) for n, key in enumerate(keys)], RECORD)
    found = submit.sent_sequences(records, Run("j", "")).where(F.col("sequence").isNotNull())
    assert sorted(one.sequence for one in found.collect()) == [1, 2]


def test_the_remaining_requests_are_those_that_were_not_sent(spark: SparkSession) -> None:
    manifest = local_dataframe(spark, [(n, str(n), "p", "", 0, None) for n in range(5)], MANIFEST)
    sent = local_dataframe(spark, [(1,), (3,), (9,)], "sequence int")
    assert sorted(one.sequence for one in submit.remaining(manifest, sent).collect()) == [0, 2, 4]


def test_exactly_once_and_at_least_once_send_the_same_bytes() -> None:
    columns = {"part": [0, 0], "number": [0, 7], "sequence": [0, 7], "payload": ["", "x"], "deadline": [None, "d"]}
    kinds = [pa.int32(), pa.int64(), pa.int32(), pa.string(), pa.string()]
    arrays = [pa.array(values, kind) for values, kind in zip(columns.values(), kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, list(columns))
    (sink,) = encode_requests(Run("j", "r1"), [batch])
    assert sink.schema.names == OUTGOING.fieldNames()
    for mine, other in zip(request_rows(Run("j", "r1"), "t", batch), sink.to_pylist(), strict=True):
        headers = [(header["key"], header["value"]) for header in other["headers"]]
        assert mine[3:] == (other["key"], other["value"], headers)
