"""Collecting from a real Kafka into bronze."""

from __future__ import annotations

import datetime as dt
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.dataset as arrow
import pytest
from confluent_kafka import TopicPartition, admin

from pipeline.errors import BrokerError, JobError
from pipeline.jobs.collect import collect
from pipeline.lake.bronze import Bronze
from tests.kafka_broker import create_topics, delete_topic, recreate_topic
from tests.spark.support import tables
from tests.spark.support.exchange import Record, Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

_admin: Any = admin  # the types of the library are incomplete


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker, tmp_path)


def places(spark: SparkSession, site: Site) -> list[tuple[str, int, int]]:
    rows = Bronze(spark, site.collecting()).read().select("topic", "partition", "offset").collect()
    return sorted((row.topic, row.partition, row.offset) for row in rows)


def other_reader(site: Site) -> list[tuple[str, int, int]]:
    """Return the records of all files, as a reader sees them that does not know this program."""
    rows = arrow.dataset(f"{site.lake}/bronze/topic={site.acks}").to_table(columns=["topic", "partition", "offset"])
    return sorted((row["topic"], row["partition"], row["offset"]) for row in rows.to_pylist())


def in_topics(site: Site, *topics: str) -> list[tuple[str, int, int]]:
    return sorted((name, partition, offset) for name in topics for partition, offset, _ in site.committed(name))


def test_every_committed_record_becomes_a_row_whatever_its_content(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(20))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(10)])
    site.send(site.acks, [Record(b"\xff\x00", b"\xff\xff"), Record(None, None), Record(b"x", b"")])
    site.send(site.dead_letters, [site.dead_letter(10, requested[10])])
    site.transaction([site.answer(11, requested[11])], "abort", "a")
    site.transaction([site.answer(12, requested[12])], "commit", "b")
    assert collect(spark, site.collecting()).complete
    assert places(spark, site) == other_reader(site) == in_topics(site, site.acks, site.dead_letters)
    rows = Bronze(spark, site.collecting()).read().collect()
    answers = {row.request_sequence: row for row in rows if row.kind == "answer" and row.decode_error is None}
    assert answers.keys() == {*range(10), 12}
    row = answers[3]
    assert (row.job, row.outcome, row.isprocessed, row.result) == ("job", "OK", True, b"done 3")
    assert (row.origin_topic, row.origin_partition, row.origin_offset) == requested[3]
    assert sorted(row.raw or b"" for row in rows if row.decode_error) == [b"", b"", b"\xff\xff"]
    (dead_letter,) = [row for row in rows if row.kind == "dead_letter"]
    found = dead_letter.request_sequence, dead_letter.error_type, dead_letter.origin_offset
    assert found == (10, "ValueError", requested[10].offset)


def test_a_small_batch_is_one_file(spark: SparkSession, site: Site) -> None:
    """With more tasks, each one would need a Python worker and write a file."""
    requested = site.send_requests(range(30))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(30)])
    collect(spark, site.collecting())
    assert len(list(Path(site.lake).glob(f"bronze/topic={site.acks}/query=*/batch=*/*.parquet"))) == 1


def test_collected_records_are_not_collected_again(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(30))
    for begin in (0, 10, 20):
        site.send(site.acks, [site.answer(n, requested[n]) for n in range(begin, begin + 10)])
        assert collect(spark, site.collecting(max_offsets=7)).complete
    assert collect(spark, site.collecting()).complete
    assert places(spark, site) == other_reader(site) == in_topics(site, site.acks)
    assert len(tables.parts(Bronze(spark, site.collecting()))) > 3


def test_a_new_checkpoint_on_an_old_table_neither_overwrites_nor_skips_records(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(40))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(20)])
    collect(spark, site.collecting())
    shutil.rmtree(f"{site.lake}/checkpoints")
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(20, 40)])
    site.send(site.dead_letters, [site.dead_letter(1, requested[1])])
    collect(spark, site.collecting())
    assert places(spark, site) == other_reader(site) == in_topics(site, site.acks, site.dead_letters)


def test_an_incomplete_batch_under_a_lost_checkpoint_is_removed(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(40))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(20)])
    collect(spark, site.collecting())
    bronze = Bronze(spark, site.collecting())
    (part,) = tables.parts(bronze)
    # This is the state after the machine fails while the files of the next batch are moved into place.
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(20, 40)])
    collect(spark, site.collecting())
    (second,) = [other for other in tables.parts(bronze) if other != part]
    bronze.files.delete(f"{second.uri}/_SUCCESS")
    shutil.rmtree(f"{site.lake}/checkpoints")
    collect(spark, site.collecting())
    assert places(spark, site) == other_reader(site) == in_topics(site, site.acks)


def test_a_record_that_two_checkpoints_have_stored_is_read_once(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(10))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(10)])
    collect(spark, site.collecting())
    bronze = Bronze(spark, site.collecting())
    shutil.move(f"{site.lake}/bronze", f"{site.lake}/aside")  # where the second collect does not see it
    shutil.rmtree(f"{site.lake}/checkpoints")
    collect(spark, site.collecting())
    shutil.copytree(f"{site.lake}/aside", f"{site.lake}/bronze", dirs_exist_ok=True)
    assert bronze.stored().count() == 20
    assert places(spark, site) == in_topics(site, site.acks)


def test_records_deleted_before_they_were_collected_are_an_error(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(60))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(30)])
    collect(spark, site.collecting())
    before = places(spark, site)
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(30, 60)])
    delete_all(site)
    for lost_checkpoint in (False, True):
        if lost_checkpoint:
            shutil.rmtree(f"{site.lake}/checkpoints")
        with pytest.raises(JobError, match="were deleted before they were collected"):
            collect(spark, site.collecting())
        assert places(spark, site) == before
    assert collect(spark, site.collecting(allow_data_loss=True)).complete
    queries = Bronze(spark, site.collecting()).queries().values()
    assert [query["allow_data_loss"] for query in queries].count(True) == 1


def test_losses_under_a_new_checkpoint_are_recorded(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(40))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(20)])
    collect(spark, site.collecting())
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(20, 40)])
    delete_all(site)
    shutil.rmtree(f"{site.lake}/checkpoints")
    site.send(site.acks, [site.answer(0, requested[0])])
    assert collect(spark, site.collecting(allow_data_loss=True)).complete
    (query,) = [query for query in Bronze(spark, site.collecting()).queries().values() if query["allow_data_loss"]]
    assert len(query["lost"]) >= 1
    assert all("were deleted before" in line for line in query["lost"])


def test_a_dead_letter_topic_may_be_created_later(spark: SparkSession, site: Site) -> None:
    delete_topic(site.bootstrap, site.dead_letters)
    requested = site.send_requests(range(2))
    site.send(site.acks, [site.answer(0, requested[0])])
    assert collect(spark, site.collecting()).complete
    create_topics(site.bootstrap, [site.dead_letters], site.partitions)
    site.send(site.dead_letters, [site.dead_letter(1, requested[1])])
    assert collect(spark, site.collecting()).complete
    assert places(spark, site) == in_topics(site, site.acks, site.dead_letters)
    (query,) = Bronze(spark, site.collecting()).queries().values()
    assert query["topics"].keys() == {site.acks, site.dead_letters}


def delete_all(site: Site) -> None:
    """Delete the records of all partitions of the ack topic, up to their ends."""
    client = _admin.AdminClient({"bootstrap.servers": site.bootstrap})
    end = _admin.OffsetSpec.latest()
    requested = client.list_offsets({TopicPartition(site.acks, p): end for p in range(site.partitions)})
    ends = [TopicPartition(site.acks, place.partition, future.result(30).offset) for place, future in requested.items()]
    for future in client.delete_records(ends).values():
        future.result(30)


@pytest.mark.parametrize("more", [False, True])
def test_a_recreated_topic_is_an_error(spark: SparkSession, site: Site, *, more: bool) -> None:
    """Even if the new topic has grown past the offsets of the old one, which Spark does not notice."""
    requested = site.send_requests(range(60))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(20)])
    collect(spark, site.collecting())
    before = places(spark, site)
    recreate_topic(site.bootstrap, site.acks, site.partitions)
    if more:
        site.send(site.acks, [site.answer(n, requested[n]) for n in range(60)])
    with pytest.raises(JobError, match="deleted and recreated"):
        collect(spark, site.collecting(allow_data_loss=more))
    shutil.rmtree(f"{site.lake}/checkpoints")
    with pytest.raises(JobError, match="deleted and recreated"):
        collect(spark, site.collecting())
    assert places(spark, site) == before


def test_an_open_transaction_delays_the_records_behind_it_and_loses_none(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests(range(30))
    records = [site.answer(n, requested[n])._replace(partition=0) for n in range(30)]
    site.send(site.acks, records[:10])
    hanging = site.transaction(records[10:12], "open")
    site.send(site.acks, records[12:])
    collect(spark, site.collecting())
    assert len(places(spark, site)) == 10
    hanging.commit_transaction(30)
    collect(spark, site.collecting())
    assert places(spark, site) == in_topics(site, site.acks)


def test_a_missing_ack_topic_is_a_clear_error(spark: SparkSession, site: Site) -> None:
    kafka = site.kafka.model_copy(update={"ack_topic": "nowhere"})
    settings = site.collecting()
    with pytest.raises(BrokerError, match="there is no topic 'nowhere'"):
        collect(spark, type(settings)(kafka=kafka, **{**site.common, "available_now": True, "follow": False}))


def test_a_stream_that_cannot_reach_the_brokers_raises_a_broker_error(
    spark: SparkSession, site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = {"kafka.default.api.timeout.ms": "2000", "kafka.request.timeout.ms": "1500"}
    nowhere = {"kafka.bootstrap.servers": "127.0.0.1:1", **quick}
    monkeypatch.setattr("pipeline.jobs.collect.connection", lambda _kafka: nowhere)
    with pytest.raises(BrokerError, match=r"collecting has stopped: .*Timed out waiting for a node assignment"):
        collect(spark, site.collecting())


def test_the_date_of_a_record_is_the_day_of_its_timestamp(spark: SparkSession, site: Site) -> None:
    requested = site.send_requests([0])
    site.send(site.acks, [site.answer(0, requested[0])])
    collect(spark, site.collecting())
    (row,) = Bronze(spark, site.collecting()).read().collect()
    assert row.date in {dt.datetime.now(dt.UTC).date(), row.timestamp.date()}
