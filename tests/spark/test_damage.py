"""A damaged data file never leads to *proved*: the audit fails with one line, or is undecided."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from pipeline.audit.result import Verdict
from pipeline.errors import JobError, format_error
from pipeline.jobs import compact
from pipeline.jobs.answers import answers
from pipeline.jobs.audit import audit
from pipeline.jobs.collect import collect
from pipeline.lake.bronze import Bronze
from tests.spark.support import tables
from tests.spark.support.exchange import Site

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

ROWS = 20


def data_files(folder: str) -> list[Path]:
    """Return the files with rows, those with the most rows first."""
    files = [file for file in Path(folder).rglob("part-*.parquet") if pq.read_metadata(file).num_rows]
    return sorted(files, key=lambda file: pq.read_metadata(file).num_rows, reverse=True)


def empty(file: Path) -> None:
    """Leave the file empty, as after a power failure before the disk has the data."""
    file.write_bytes(b"")


def cut(file: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) // 2])


def flip(file: Path, column: str) -> None:
    """Change one bit of the values of a column."""
    group = pq.read_metadata(file).row_group(0)
    chunk = next(c for c in map(group.column, range(group.num_columns)) if c.path_in_schema == column)
    content = bytearray(file.read_bytes())
    content[(chunk.dictionary_page_offset or chunk.data_page_offset) + chunk.total_compressed_size // 2] ^= 1
    file.write_bytes(bytes(content))


def flip_offset(file: Path) -> None:
    flip(file, "offset")


def without_checksum(damage: Callable[[Path], None]) -> Callable[[Path], None]:
    """Return the same damage for a file without Hadoop's checksum beside it, such as a copied file or one on HDFS."""

    def damaged(file: Path) -> None:
        damage(file)
        file.with_name(f".{file.name}.crc").unlink()

    return damaged


DAMAGES = {
    "empty": without_checksum(empty),
    "removed": without_checksum(lambda file: file.unlink()),
    "cut": without_checksum(cut),
    "one bit": without_checksum(flip_offset),
    "one bit, with Hadoop's checksum": flip_offset,
}


@pytest.fixture
def site(spark: SparkSession, broker: Broker, tmp_path: Path) -> Site:
    """Return the site of a job whose second batch disproves it: the batch has a second answer to a request."""
    site = Site(broker, tmp_path, partitions=1)
    tables.plan(spark, site.auditing().manifest, ROWS)
    sent = site.send_requests(range(ROWS))
    site.send(site.acks, [site.answer(n, sent[n]) for n in range(ROWS)])
    collect(spark, site.collecting())
    site.send(site.acks, [site.answer(5, sent[5])])
    collect(spark, site.collecting())
    assert audit(spark, site.auditing()).verdict is Verdict.DISPROVED
    return site


def judged(spark: SparkSession, site: Site) -> str:
    """Return the verdict, or the one-line error with which the audit failed."""
    try:
        result = audit(spark, site.auditing())
    except Exception as error:  # noqa: BLE001 - as the command line does
        lines = format_error(error)
        assert lines is not None, "a line for the user"
        assert len(lines) == 1
        assert not (Path(site.auditing().audit) / "audit.json").exists(), "no verdict"
        return lines[0]
    return f"{result.verdict}: {' '.join(result.pending)}"


@pytest.mark.timeout(900)  # six audits
def test_a_job_with_a_damaged_bronze_is_never_proved(spark: SparkSession, site: Site, tmp_path: Path) -> None:
    bronze = Bronze(spark, site.auditing())
    first, second = data_files(bronze.path)
    shutil.copytree(site.lake, tmp_path / "backup")
    for name, damage in DAMAGES.items():
        damage(second)
        said = judged(spark, site)
        if name in {"empty", "removed"}:
            assert said.startswith("undecided: not shown that bronze has all rows that were collected"), name
            assert "bronze has 1 rows fewer" in said
        else:
            assert second.name in said, f"{name}: {said}"
        shutil.rmtree(site.lake)
        shutil.copytree(tmp_path / "backup", site.lake)
    shutil.rmtree(second.parent)
    assert "bronze lacks 1 of the batches that were collected" in judged(spark, site)
    shutil.rmtree(site.lake)
    shutil.copytree(tmp_path / "backup", site.lake)
    # The audit does not read the results. ``answers`` reads them, and notices the damage.
    without_checksum(lambda file: flip(file, "result"))(first)
    with pytest.raises(Exception, match=first.name) as caught:
        answers(spark, site.answering())
    assert len(format_error(caught.value) or []) == 1


def test_a_job_with_a_damaged_manifest_is_never_proved(spark: SparkSession, site: Site) -> None:
    (largest, *_) = data_files(site.auditing().manifest)
    without_checksum(lambda file: flip(file, "source_id"))(largest)
    assert largest.name in judged(spark, site)
    metadata = Path(site.auditing().manifest) / "_manifest.json"
    metadata.with_name("._manifest.json.crc").unlink()
    metadata.write_text(metadata.read_text()[:40])
    assert "_manifest.json is damaged" in judged(spark, site)


def test_a_compaction_refuses_batches_with_lost_rows(spark: SparkSession, site: Site) -> None:
    bronze = Bronze(spark, site.auditing())
    assert bronze.parquet is not None
    without_checksum(empty)(data_files(bronze.path)[1])
    with pytest.raises(JobError, match=r"1 rows of .* are lost"):
        compact._merge(spark, bronze.parquet, bronze.parquet.parts())
    assert bronze.lost_rows() == 1
