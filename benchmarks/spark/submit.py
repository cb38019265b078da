"""Exactly-once submission of planned requests, compared with Spark's Kafka sink for the same records."""

from __future__ import annotations

import contextlib
import io
import itertools
import tempfile
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.broker import Broker
from benchmarks.spark.measure import in_turns, rates, ratio, session
from pipeline.jobs import submit
from pipeline.jobs.plan import plan
from pipeline.kafka.connector import write_records
from pipeline.kafka.records import request_records
from pipeline.lake.schemas import MANIFEST
from pipeline.lake.tables import read_table
from pipeline.messages.requests import Run
from pipeline.settings import Common, KafkaSettings, Source, SubmitSettings

if TYPE_CHECKING:
    from benchmarks.figures import Figure

NAME = "spark-submit"
RATE, OF_SINK = "submit", "submit, of the sink"  # goals


def run(rows: int = 200_000, repetitions: int = 6) -> list[Figure]:
    """Return requests per second, and the ratio to the sink."""
    spark = session()
    numbers = itertools.count()
    with Broker() as broker, tempfile.TemporaryDirectory(prefix="bench-submit-") as lake:
        table = f"{lake}/in.parquet"
        pq.write_table(pa.table({"id": range(rows), "payload": [f"configuration {n}" for n in range(rows)]}), table)
        job = Common(job="bench", lake=lake)
        plan(spark, job, Source(uri=table, id="id", payload="payload"))

        def fresh() -> KafkaSettings:
            topic = f"requests-{next(numbers)}"
            broker.create(topic)
            names = {"KAFKA_REQUEST_TOPIC": topic, "KAFKA_ACK_TOPIC": "acks"}
            return KafkaSettings.load({"KAFKA_BOOTSTRAP_SERVER": broker.address, **names})

        def ours() -> None:
            settings = SubmitSettings(job=job.job, lake=lake, kafka=fresh(), progress="off")
            with contextlib.redirect_stdout(io.StringIO()):
                submit.submit(spark, settings)

        def sink() -> None:
            kafka = fresh()
            manifest = read_table(spark, job.table("manifest"), MANIFEST)
            write_records(request_records(manifest, Run(job.job, "r0")), kafka, kafka.request_topic)

        seconds = in_turns({"pipeline": ours, "sink": sink}, repetitions)
    return [
        *rates(NAME, "submit exactly once", rows, {"pipeline": seconds["pipeline"]}, RATE),
        *rates(NAME, "Spark's own sink", rows, {"sink": seconds["sink"]}),
        ratio(NAME, "exactly once, of the sink", seconds["pipeline"], seconds["sink"], OF_SINK),
    ]
