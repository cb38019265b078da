"""A place to run jobs in: topics of its own on the real broker, a lake, and settings for both."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq

from pipeline.plan import plan
from pipeline.settings import Common, KafkaSettings, ReplaySettings, Source, SubmitSettings
from tests.spark.support.requests import Found, committed

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker


class JobSite:
    """One job and its topics: ``requests``, ``acks``, ``letters``."""

    def __init__(self, broker: Broker, folder: Path, partitions: int = 4) -> None:
        self.broker = broker
        self.bootstrap = broker.bootstrap
        self.folder = folder
        self.lake = str(folder / "lake")
        self.requests, self.acks, self.letters = broker.topics(3, partitions)
        self.environment = {
            "KAFKA_BOOTSTRAP_SERVER": self.bootstrap,
            "KAFKA_REQUEST_TOPIC": self.requests,
            "KAFKA_ACK_TOPIC": self.acks,
            "KAFKA_DEAD_LETTER_TOPIC": self.letters,
        }
        self.kafka = KafkaSettings.load(self.environment)

    def variables(self) -> dict[str, str]:
        """The environment of a command."""
        return {**os.environ, **self.environment}

    def table(self, rows: int, **columns: Any) -> str:
        """A table with ``id`` and ``payload``."""
        path = self.folder / f"in-{rows}.parquet"
        pq.write_table(pa.table({"id": range(rows), "payload": [f"p{n}" for n in range(rows)], **columns}), path)
        return str(path)

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

    def submit(self, **options: Any) -> SubmitSettings:
        base = SubmitSettings(job="j", lake=self.lake, kafka=self.kafka, progress="off")
        return replace(base, **options)

    def replay(self, **options: Any) -> ReplaySettings:
        base = ReplaySettings(job="j", lake=self.lake, kafka=self.kafka, progress="off")
        return replace(base, **options)

    def sent(self) -> list[Found]:
        """The committed requests."""
        return committed(self.bootstrap, self.requests)

    def sequences(self) -> list[int]:
        """The sequences in the keys of the committed requests, sorted: one missing or twice is seen."""
        return sorted(int((found.key or b"").split(b"/")[1]) for found in self.sent())
