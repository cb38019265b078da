"""Batches of a Delta or Iceberg bronze, some of them repeated, and a compaction, in a separate process.

``python -m tests.spark.support.repeated_batches FORMAT LAKE``. It prints one line of JSON: which calls have written,
the offsets, their end, and the number of files before and after the compaction.
"""

from __future__ import annotations

import datetime as dt
import json
import sys

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.jobs.compact import compact
from pipeline.lake.bronze import Bronze
from pipeline.lake.catalogs import prepared
from pipeline.lake.submission import Submission
from pipeline.session import build_session
from pipeline.settings import CompactSettings, TableFormat
from tests.spark.support import tables
from tests.spark.support.tables import answer

ROWS, QUERY = 10, "0f3e"
SMALL = {"spark.sql.shuffle.partitions": "2", "spark.databricks.delta.snapshotPartitions": "2"}


def main(table_format: TableFormat, lake: str) -> None:
    """Write the batches 0 to 5, compact, and write the last one again."""
    spark = build_session("tests", master="local[2]", table_format=table_format, options=SMALL)
    before = tables.NOON.date() + dt.timedelta(days=1)
    given = CompactSettings(job=tables.JOB, lake=lake, table_format=table_format, progress="off", before=before)
    settings = prepared(spark, given)
    Submission("", "exactly-once", ack_topic=tables.ACKS).write(spark, settings)

    def write(batch: int) -> bool:
        rows = [answer(ROWS * batch + number) for number in range(ROWS)]
        return Bronze(spark, settings).write(tables.bronze(spark, rows), QUERY, batch)

    def files() -> int:
        return Bronze(spark, settings).read().select(F.input_file_name()).distinct().count()

    written = [write(batch) for batch in (0, 0, 1, 2, 2, 3, 4, 5)]
    many = files()
    compact(spark, settings)
    written.append(write(5))
    bronze = Bronze(spark, settings)
    offsets = sorted(row.offset for row in bronze.read().select("offset").collect())
    found = {"written": written, "offsets": offsets, "ends": bronze.ends(), "files": [many, files()]}
    sys.stdout.write(json.dumps(found) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])  # type: ignore[arg-type]  # the format's name
