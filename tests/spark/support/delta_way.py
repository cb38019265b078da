"""The whole way with Delta tables, in a process of its own: Delta wants to be there when the JVM starts.

``python -m tests.spark.support.delta_way LAKE ROWS INPUT``, with the pipeline's variables set. Prints what the tables
hold as one line of JSON.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
from typing import Any

from pyspark.sql import SparkSession

from pipeline import cli
from tests.spark.support import responder

JOB = "delta"


def command(lake: str, name: str, *arguments: str) -> None:
    """A command, as the user types it; anything but success ends it all."""
    common = ("--job", JOB, "--lake", lake, "--table-format", "delta", "--progress", "off", "--master", "local[2]")
    sys.argv = ["pipeline", name, *common, *arguments]
    code = cli.run()
    if code:
        sys.exit(f"pipeline {name} ended with {code}")


def look(lake: str, rows: int) -> dict[str, Any]:
    """What readers find who know of Delta and nothing of this program."""
    spark = SparkSession.getActiveSession()
    assert spark is not None

    def read(table: str) -> Any:
        return spark.read.format("delta").load(f"{lake}/{table}/job={JOB}")

    places = read("bronze").select("topic", "partition", "offset")
    history = spark.sql(f"DESCRIBE HISTORY delta.`{lake}/bronze/job={JOB}`").select("operation").collect()
    return {
        "manifest": read("manifest").where(f"sequence between 0 and {rows - 1}").distinct().count(),
        "bronze": places.count(),
        "places": places.distinct().count(),
        "answers": read("answers").where("outcome = 'OK'").select("sequence").distinct().count(),
        "operations": sorted({row.operation for row in history}),
    }


def main(lake: str, rows: int, table: str) -> None:
    """Submit, collect in several batches, again under a new checkpoint, compact, look at the answers, prove."""
    command(lake, "submit", "--input", table, "--id", "id", "--payload", "payload", "--parts", "2")
    kafka = os.environ["KAFKA_BOOTSTRAP_SERVER"], os.environ["KAFKA_REQUEST_TOPIC"], os.environ["KAFKA_ACK_TOPIC"]
    responder.main(*kafka, rows, transactional=False)
    command(lake, "collect", "--available-now", "--max-offsets", str(rows // 3))
    shutil.rmtree(f"{lake}/checkpoints")
    command(lake, "collect", "--available-now")
    command(lake, "compact", "--before", (dt.datetime.now(dt.UTC).date() + dt.timedelta(days=1)).isoformat())
    command(lake, "answers")
    command(lake, "audit")
    sys.stdout.write(json.dumps(look(lake, rows)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
