"""Submitting planned requests exactly once, beside Spark's own Kafka sink with the same records."""

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
from pipeline import submit
from pipeline.codec import request_records
from pipeline.kafka_io import write_records
from pipeline.plan import plan
from pipeline.schemas import MANIFEST
from pipeline.settings import Common, KafkaSettings, Source, SubmitSettings
from pipeline.table_io import read_table

if TYPE_CHECKING:
    from benchmarks.figures import Figure

NAME = "spark-submit"
RATE, OF_SINK = "submit", "submit, of the sink"  # goals


def run(rows: int = 200_000, repetitions: int = 5) -> list[Figure]:
    """Requests a second, and how that compares with the sink."""
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
                submit.run(settings)

        def sink() -> None:
            kafka = fresh()
            manifest = read_table(spark, job.manifest, "parquet", MANIFEST)
            write_records(request_records(manifest, job.job), kafka, kafka.request_topic)

        seconds = in_turns({"pipeline": ours, "sink": sink}, repetitions)
    return [
        *rates(NAME, "submit exactly once", rows, {"pipeline": seconds["pipeline"]}, RATE),
        *rates(NAME, "Spark's own sink", rows, {"sink": seconds["sink"]}),
        ratio(NAME, "exactly once, of the sink", seconds["pipeline"], seconds["sink"], OF_SINK),
    ]
