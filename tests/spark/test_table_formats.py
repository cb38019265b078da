"""Lakes of Delta and Iceberg tables, each in separate processes: a JVM is started for one format.

``E2E_LONG=1``: also all commands on a local disk, and on an S3 API with ``kill -9`` in collect and in compact. Spark
fetches Iceberg and the jars for S3 when they are first needed. The S3 server is moto's.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.waiting import until
from tests.long_form import long_only
from tests.spark.support import responder
from tests.spark.support.programs import program
from tests.spark.support.s3 import BUCKET, SERVER, store
from tests.spark.support.site import JobSite

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from tests.kafka_broker import Broker
    from tests.spark.support.programs import Program
    from tests.spark.support.s3 import Store

ROOT = Path(__file__).parents[2]
ROWS, OTHER_ROWS, BATCH = 600, 200, 100
ALL = ROWS + OTHER_ROWS
SECONDS = 300.0
COLLECT = f"collect --job j --available-now --max-offsets {BATCH}"
COLLECT_OTHER = "collect --job k --available-now"
PROVE = [f"{name} --job {job}" for job in ("j", "k") for name in ("answers", "audit")]
FORMATS = ["delta", pytest.param("iceberg", marks=long_only)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


class Lake:
    """A lake of tables, and two jobs in it that use the same topics."""

    def __init__(self, site: JobSite, format_lake_files: tuple[str, str, str], variables: dict[str, str]) -> None:
        self._site, self._arguments = site, format_lake_files
        self._variables = {**site.environment, **variables}

    def submit(self) -> None:
        """Submit both jobs, and answer their requests."""
        site = self._site
        rows = {"j": ROWS, "k": OTHER_ROWS}
        columns = "--id id --payload payload --parts 2"
        self.run(*(f"submit --job {job} --input {site.table(count)} {columns}" for job, count in rows.items()))
        responder.main(site.bootstrap, site.requests, site.acks, ALL, transactional=True)

    def run(self, *commands: str) -> str:
        """Run commands to their end. Return the last line of their output."""
        return finished(self._site.folder, self._variables, "table_way", *self._arguments, *commands)

    def kill(self, command: str, when: Callable[[], bool]) -> None:
        """Run a command. Kill all its processes once ``when`` returns true, or at its end if that comes first."""
        with started(self._site.folder, self._variables, "table_way", *self._arguments, command) as running:
            until(lambda: when() or not running.running, running.said, SECONDS)


def started(folder: Path, variables: dict[str, str], name: str, *arguments: str) -> AbstractContextManager[Program]:
    """Start one of the programs in ``support``."""
    command = [sys.executable, "-m", f"tests.spark.support.{name}", *arguments]
    return program(command, {**os.environ, "PYTHONPATH": str(ROOT), **variables}, folder)


def finished(folder: Path, variables: dict[str, str], name: str, *arguments: str) -> str:
    """Run one of the programs to its end. Return the last line of its output."""
    with started(folder, variables, name, *arguments) as running:
        return running.finish(SECONDS).splitlines()[-1]


def compact() -> str:
    return f"compact --job j --before {dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)}"


@pytest.mark.parametrize("table_format", FORMATS)
def test_a_batch_that_is_written_again_is_stored_once(tmp_path: Path, table_format: str) -> None:
    found = json.loads(finished(tmp_path, {}, "repeated_batches", table_format, str(tmp_path / "lake")))
    assert found["written"] == [True, False, True, True, False, True, True, True, False]
    assert found["offsets"] == list(range(60))
    assert found["ends"] == {"acks": {"0": 60}}
    many, few = found["files"]
    assert (many >= 6, few) == (True, 1)


@long_only
@pytest.mark.parametrize("table_format", ["delta", "iceberg"])
def test_all_commands_work_with_tables_of_a_format(broker: Broker, tmp_path: Path, table_format: str) -> None:
    site = JobSite(broker, tmp_path)
    lake = Lake(site, (table_format, site.lake, ""), {})
    lake.submit()
    lake.run(COLLECT)
    shutil.rmtree(f"{site.lake}/checkpoints")
    found = json.loads(lake.run(COLLECT, compact(), COLLECT_OTHER, *PROVE))
    assert (found["rows"], found["places"]) == (ALL, ALL)


@long_only
@pytest.mark.skipif(SERVER is None, reason="needs an S3 server: pip install 'moto[s3]' flask flask-cors")
@pytest.mark.parametrize(
    "format_lake_files",
    [("delta", f"s3a://{BUCKET}/lake", ""), ("iceberg", "store.work", f"s3a://{BUCKET}/files")],
    ids=["delta", "iceberg"],
)
def test_kills_on_an_s3_api_lose_and_repeat_no_record(
    broker: Broker, tmp_path: Path, format_lake_files: tuple[str, str, str]
) -> None:
    with store(tmp_path) as s3:
        lake = Lake(JobSite(broker, tmp_path), format_lake_files, s3.configure(tmp_path))
        lake.submit()
        lake.kill(COLLECT, lambda: begun(s3) > committed(s3) >= 1)
        assert begun(s3) > committed(s3), "the kill came between two batches"
        lake.kill(COLLECT, lambda: committed(s3) >= 3)
        assert committed(s3) * BATCH < ALL, "the kills came too late to show anything"
        lake.run(COLLECT)
        files, commits = len(s3.keys(r"\.parquet$")), versions(s3)
        lake.kill(compact(), lambda: len(s3.keys(r"\.parquet$")) > files)
        assert versions(s3) == commits, "the kill came after the commit of the compaction"
        found = json.loads(lake.run(compact(), COLLECT_OTHER))
        assert (found["rows"], found["places"]) == (ALL, ALL)
        # In another process: a session cannot write to SQLite after the stream's session has written to it.
        lake.run(*PROVE)


def begun(s3: Store) -> int:
    """Return how many batches the collect of the first job has begun."""
    return len(s3.keys(r"checkpoints/job=j/offsets/\d+$"))


def committed(s3: Store) -> int:
    return len(s3.keys(r"checkpoints/job=j/commits/\d+$"))


def versions(s3: Store) -> int:
    """Return the total number of versions of all tables."""
    return len(s3.keys(r"_delta_log/\d+\.json$")) + len(s3.keys(r"\.metadata\.json$"))
