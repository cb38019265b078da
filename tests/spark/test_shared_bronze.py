"""Jobs that use the same topics share one bronze table: each record is stored once, and each job sees its part."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import TopicPartition, admin

from pipeline.errors import JobError
from pipeline.jobs.collect import collect
from pipeline.lake.bronze import Bronze
from pipeline.lake.submission import Submission
from tests.spark.support.exchange import Site

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.settings import CollectSettings
    from tests.kafka_broker import Broker

_admin: Any = admin  # the types of the library are incomplete


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker, tmp_path)


@pytest.fixture
def other(site: Site) -> CollectSettings:
    """Return the settings of another job in the same lake and on the same topics."""
    return replace(site.collecting(), job="other")


def answer(site: Site, begin: int, end: int) -> None:
    requested = site.send_requests(range(begin, end))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(begin, end)])


def stored(spark: SparkSession, settings: CollectSettings) -> tuple[int, int]:
    """Return the number of rows, and of different records among them."""
    table = Bronze(spark, settings).stored()
    return table.count(), table.select("topic", "partition", "offset").distinct().count()


def test_a_job_does_not_store_records_that_another_job_has_stored(
    spark: SparkSession, site: Site, other: CollectSettings
) -> None:
    answer(site, 0, 20)
    assert collect(spark, site.collecting()).rows == 20
    assert collect(spark, other).rows == 0
    answer(site, 20, 30)
    assert collect(spark, other).rows == 10
    counted: list[int | None] = []
    assert collect(spark, site.collecting(), answered=counted.append).rows == 0, "its checkpoint was behind"
    assert counted == [None, None], "before the start; and for answers in the table that it has not stored itself"
    assert stored(spark, other) == (30, 30)
    assert [entry.name for entry in Path(site.lake, "bronze").iterdir()] == [f"topic={site.acks}"]


def test_the_view_of_a_job_begins_at_the_offsets_of_its_submit(
    spark: SparkSession, site: Site, other: CollectSettings
) -> None:
    answer(site, 0, 20)
    collect(spark, site.collecting())
    ends = Bronze(spark, other).ends()
    Submission("r1", "exactly-once", ends=ends, ack_topic=site.acks).write(spark, other)
    answer(site, 20, 25)
    collect(spark, other)
    assert Bronze(spark, other).read().count() == 5
    assert Bronze(spark, site.collecting()).read().count() == 25


def test_records_deleted_after_another_job_has_stored_them_are_no_loss(
    spark: SparkSession, site: Site, other: CollectSettings
) -> None:
    answer(site, 0, 10)
    collect(spark, site.collecting())
    answer(site, 10, 20)
    collect(spark, other)
    client = _admin.AdminClient({"bootstrap.servers": site.bootstrap})
    ends = Bronze(spark, other).covered()[site.acks]
    for future in client.delete_records([TopicPartition(site.acks, p, end) for p, end in ends.items()]).values():
        future.result(30)
    answer(site, 20, 25)
    assert collect(spark, site.collecting()).rows == 5
    assert stored(spark, other) == (25, 25)


def test_the_bronze_of_an_earlier_version_is_refused(spark: SparkSession, site: Site, other: CollectSettings) -> None:
    answer(site, 0, 5)
    collect(spark, site.collecting())
    shutil.copytree(Path(site.lake, "bronze", f"topic={site.acks}"), Path(site.lake, "bronze", "job=other"))
    with pytest.raises(JobError, match="written by an earlier version: collect the job into another --lake"):
        Bronze(spark, other)
