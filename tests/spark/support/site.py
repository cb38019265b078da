"""The site of a job: its topics on the real broker, a lake, and settings for both."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.jobs.plan import plan
from pipeline.settings import Common, KafkaSettings, ReplaySettings, Source, SubmitSettings
from tests.spark.support.requests import Found, committed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker


class JobSite:
    """One job and its topics: ``requests``, ``acks``, ``dead_letters``."""

    def __init__(self, broker: Broker, folder: Path, partitions: int = 4) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.folder = folder
        self.lake = str(folder / "lake")
        self.requests, self.acks, self.dead_letters = broker.topics(3, partitions)
        self.environment = {
            "KAFKA_BOOTSTRAP_SERVER": self.bootstrap,
            "KAFKA_REQUEST_TOPIC": self.requests,
            "KAFKA_ACK_TOPIC": self.acks,
            "KAFKA_DEAD_LETTER_TOPIC": self.dead_letters,
        }
        self.kafka = KafkaSettings.load(self.environment)

    def variables(self) -> dict[str, str]:
        """Return the environment of a command."""
        return {**os.environ, **self.environment}

    def table(self, rows: int, **columns: Any) -> str:
        """Write a table with ``id`` and ``payload``. Return its path."""
        return write_table(self.folder, rows, **columns).uri

    def source(self, rows: int, parts: int | None = None, **columns: Any) -> Source:
        return Source(
            uri=self.table(rows, **columns),
            id="id",
            payload="payload",
            parts=parts,
            deadline="deadline" if "deadline" in columns else None,
        )

    def plan(self, spark: SparkSession, rows: int, *, parts: int | None = None, **columns: Any) -> None:
        plan(spark, Common(job="j", lake=self.lake), self.source(rows, parts, **columns))

    def run(self) -> str:
        """Return the run of the job's manifest, or an empty text without one."""
        metadata = Path(self.lake) / "manifest/job=j/_manifest.json"
        return str(json.loads(metadata.read_text())["run"]) if metadata.exists() else ""

    def submit(self, **options: Any) -> SubmitSettings:
        settings = SubmitSettings(job="j", lake=self.lake, kafka=self.kafka, progress="off")
        return replace(settings, **options)

    def replay(self, **options: Any) -> ReplaySettings:
        settings = ReplaySettings(job="j", lake=self.lake, kafka=self.kafka, progress="off")
        return replace(settings, **options)

    def sent(self) -> list[Found]:
        """Return the committed requests."""
        return committed(self.bootstrap, self.requests)

    def sequences(self) -> list[int]:
        """Return the sequences of the committed requests, sorted, so that missing and double ones are visible."""
        return sorted(int((found.key or b"").split(b"/")[1]) for found in self.sent())


def write_table(folder: Path, rows: int, **columns: Any) -> Source:
    """Write a table with ``id`` and ``payload``."""
    path = folder / f"in-{rows}.parquet"
    pq.write_table(pa.table({"id": range(rows), "payload": [f"p{n}" for n in range(rows)], **columns}), path)
    return Source(uri=str(path), id="id", payload="payload")
