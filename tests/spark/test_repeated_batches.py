"""Batches that are written again after a kill, and the files and folders that a kill leaves or loses."""

from __future__ import annotations

import datetime as dt
import shutil
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import admin

from pipeline.audit.backlog import backlog
from pipeline.errors import JobError
from pipeline.jobs.collect import collect
from pipeline.jobs.compact import compact
from pipeline.lake.bronze import Bronze
from pipeline.lake.submission import Submission
from pipeline.settings import Common, CompactSettings
from tests.spark.support import tables
from tests.spark.support.exchange import Site
from tests.spark.support.tables import answer
from tests.spark.test_collect import delete_all, in_topics, other_reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

_admin: Any = admin  # the types of the library are incomplete
QUERY = "0f3e"


@pytest.fixture
def bronze(spark: SparkSession, tmp_path: Path) -> Bronze:
    """Return a table with one batch of ten rows."""
    common = Common(job=tables.JOB, lake=str(tmp_path), progress="off")
    Submission("", "exactly-once", ack_topic=tables.ACKS).write(spark, common)
    bronze = Bronze(spark, common)
    write(spark, bronze)
    return bronze


@pytest.fixture
def site(broker: Broker, tmp_path: Path) -> Site:
    return Site(broker, tmp_path)


def write(spark: SparkSession, bronze: Bronze, rows: int = 10, batch: int = 0) -> None:
    bronze.write(tables.bronze(spark, [answer(10 * batch + number) for number in range(rows)]), QUERY, batch)


def folder(bronze: Bronze) -> Path:
    return Path(bronze.path, f"query={QUERY}", "batch=0")


def recorded(bronze: Bronze) -> list[str]:
    return [file.name for file in folder(bronze).glob("_rows-*")]


def test_a_complete_batch_is_not_written_again(spark: SparkSession, bronze: Bronze) -> None:
    before = sorted(folder(bronze).iterdir())
    write(spark, bronze)
    assert sorted(folder(bronze).iterdir()) == before, "its files are those of the first attempt"


def test_a_batch_without_a_count_gets_one(spark: SparkSession, bronze: Bronze) -> None:
    """This is the state after the writer was killed before it recorded the count."""
    (folder(bronze) / "_rows-10").unlink()
    before = sorted(folder(bronze).glob("*.parquet"))
    write(spark, bronze)
    assert recorded(bronze) == ["_rows-10"]
    assert sorted(folder(bronze).glob("*.parquet")) == before
    assert bronze.lost_rows() == 0


def test_a_torn_or_damaged_batch_is_written_again(spark: SparkSession, bronze: Bronze) -> None:
    (folder(bronze) / "_SUCCESS").unlink()
    write(spark, bronze, rows=12)
    assert (bronze.stored().count(), recorded(bronze)) == (12, ["_rows-12"])
    for file in folder(bronze).glob("*.parquet"):  # as after a power failure
        file.with_name(f".{file.name}.crc").unlink()
        file.write_bytes(b"")
    write(spark, bronze, rows=12)
    assert (bronze.stored().count(), recorded(bronze)) == (12, ["_rows-12"])


def test_the_unfinished_query_file_of_a_killed_writer_is_ignored(bronze: Bronze) -> None:
    facts = {"checkpoint": "somewhere", "topics": {}, "allow_data_loss": False, "lost": []}
    bronze.record_query(QUERY, facts)
    Path(bronze.path, "_queries", "_3b1c").write_text('{"begun": "20')
    assert bronze.queries() == {QUERY: facts}


@pytest.mark.parametrize("lost", [["batch=0"], ["batch=1"], ["batch=0", "batch=1"]])
def test_lost_batch_folders_are_counted(spark: SparkSession, bronze: Bronze, lost: list[str]) -> None:
    write(spark, bronze, batch=1)
    bronze.record_query(QUERY, {"checkpoint": "deleted", "topics": {}, "batches": 2})
    assert bronze.lost_batches() == 0
    for name in lost:
        shutil.rmtree(folder(bronze).parent / name)
    assert bronze.lost_batches() == len(lost)


def test_a_gap_is_noticed_without_a_recorded_number_of_batches(spark: SparkSession, bronze: Bronze) -> None:
    """A table of an earlier version has no such number."""
    write(spark, bronze, batch=1)
    shutil.rmtree(folder(bronze))
    assert bronze.lost_batches() == 1


@pytest.mark.parametrize("lost", ["", "/batch=0"])
def test_the_batches_of_a_lost_compacted_folder_are_counted(spark: SparkSession, bronze: Bronze, lost: str) -> None:
    write(spark, bronze, batch=1)
    bronze.record_query(QUERY, {"checkpoint": "deleted", "topics": {}, "batches": 2})
    before = tables.NOON.date() + dt.timedelta(days=1)
    assert (
        compact(
            spark, CompactSettings(job=tables.JOB, lake=bronze.path.split("/bronze/")[0], progress="off", before=before)
        )
        == 2
    )
    assert bronze.lost_batches() == 0
    (made,) = Path(bronze.path).glob("query=compact-*")
    shutil.rmtree(f"{made}{lost}")
    assert bronze.lost_batches() == 2


def answered(site: Site, begin: int, end: int) -> None:
    requested = site.send_requests(range(begin, end))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(begin, end)])


def uncommit(site: Site) -> None:
    """Remove the newest commit of the checkpoint, as if its process was killed just before it."""
    commits = Path(site.lake, "checkpoints", f"job={site.job}", "commits")
    newest = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
    for file in (commits / str(newest), commits / f".{newest}.crc"):
        file.unlink(missing_ok=True)


@pytest.mark.timeout(120)
def test_a_batch_stored_before_a_kill_is_not_stored_again(spark: SparkSession, site: Site) -> None:
    answered(site, 0, 20)
    collect(spark, site.collecting())
    bronze = Bronze(spark, site.collecting())
    before = sorted(Path(bronze.path).rglob("*.parquet"))
    uncommit(site)
    answered(site, 20, 30)
    counted: list[int | None] = []
    again = collect(spark, site.collecting(), answered=counted.append)
    assert (again.complete, again.rows, again.batches) == (True, 10, 2)
    # None before the start and for the batch that was stored already: the caller counts its answers in the table.
    assert counted == [None, None, 10]
    assert set(before) < set(Path(bronze.path).rglob("*.parquet"))
    assert bronze.stored().count() == 30


def test_a_checkpoint_from_a_backup_neither_skips_nor_repeats_records(spark: SparkSession, site: Site) -> None:
    """The next batch of the restored checkpoint has a number that exists already, and other records."""
    checkpoint, backup = f"{site.lake}/checkpoints/job={site.job}", f"{site.lake}/backup"
    answered(site, 0, 10)
    collect(spark, site.collecting())
    shutil.copytree(checkpoint, backup)
    answered(site, 10, 20)
    collect(spark, site.collecting())
    shutil.rmtree(checkpoint)
    shutil.move(backup, checkpoint)
    answered(site, 20, 30)
    assert collect(spark, site.collecting()).rows == 10
    assert other_reader(site) == in_topics(site, site.acks)


def test_stored_batches_of_a_job_count_while_the_job_writes_its_next_batch(spark: SparkSession, site: Site) -> None:
    other = replace(site.collecting(), job="other")
    answered(site, 0, 10)
    collect(spark, other)
    answered(site, 10, 20)
    query = collect(spark, site.collecting()).query
    Path(Bronze(spark, other).path, f"query={query}", "batch=1", "_temporary").mkdir(parents=True)
    assert collect(spark, other).rows == 0
    assert other_reader(site) == in_topics(site, site.acks)


@pytest.mark.parametrize("lost_checkpoint", [False, True])
def test_an_added_partition_is_collected_from_its_beginning(
    spark: SparkSession, site: Site, *, lost_checkpoint: bool
) -> None:
    answered(site, 0, 10)
    collect(spark, site.collecting())
    add_partition(site)
    answered(site, 10, 30)
    if lost_checkpoint:
        shutil.rmtree(f"{site.lake}/checkpoints")
    assert collect(spark, site.collecting()).rows == 20
    assert other_reader(site) == in_topics(site, site.acks)
    assert backlog(site.auditing(), Bronze(spark, site.auditing())).settled


def test_records_lost_from_an_added_partition_are_an_error_under_a_new_checkpoint(
    spark: SparkSession, site: Site
) -> None:
    answered(site, 0, 10)
    collect(spark, site.collecting())
    add_partition(site)
    answered(site, 10, 30)
    delete_all(site)
    shutil.rmtree(f"{site.lake}/checkpoints")
    with pytest.raises(JobError, match=f"records 0 to .* of {site.acks}/{site.partitions - 1} were deleted"):
        collect(spark, site.collecting())


def add_partition(site: Site) -> None:
    client = _admin.AdminClient({"bootstrap.servers": site.bootstrap})
    site.partitions += 1
    (future,) = client.create_partitions([_admin.NewPartitions(site.acks, site.partitions)]).values()
    future.result(30)
