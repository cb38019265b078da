"""Commands on a lake of Delta or Iceberg tables, in a separate process: a JVM is started for one format.

``python -m tests.spark.support.table_way FORMAT LAKE FILES COMMAND…``, with the pipeline's variables set. FILES may be
empty. A command is a text such as ``collect --job j --available-now``. The last line of the output is the content of
bronze, as JSON.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from typing import TYPE_CHECKING

from pipeline.cli.main import run
from pipeline.session import build_session
from tests.spark.support.repeated_batches import SMALL

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def command(where: list[str], text: str) -> None:
    """Run a command as the user types it. Exit unless it succeeds."""
    name, *arguments = shlex.split(text)
    sys.argv = ["pipeline", name, *where, "--progress", "off", "--master", "local[2]", *arguments]
    code = run()
    if code:
        sys.exit(f"pipeline {text} ended with {code}")


def bronze(spark: SparkSession, table_format: str, lake: str) -> dict[str, int]:
    """Return the numbers of rows and places that other readers of the format see, which do not know this program."""
    topic = os.environ["KAFKA_ACK_TOPIC"]
    if "/" not in lake:
        table = spark.table(f"{lake}.`bronze_{topic}`")
    elif table_format == "iceberg":
        table = spark.table(f"pipeline_lake.bronze.`topic={topic}`")
    else:
        table = spark.read.format(table_format).load(f"{lake}/bronze/topic={topic}")
    places = table.select("topic", "partition", "offset")
    return {"rows": places.count(), "places": places.distinct().count()}


def main(table_format: str, lake: str, files: str, *commands: str) -> None:
    """Run the commands, all in one session."""
    where = ["--lake", lake, "--table-format", table_format, *(["--files", files] if files else [])]
    spark = build_session("tests", master="local[2]", table_format=table_format, options=SMALL)  # type: ignore[arg-type]
    if "/" not in lake:
        spark.sql(f"CREATE NAMESPACE IF NOT EXISTS {lake}")
    for text in commands:
        command(where, text)
    if any(text.startswith("collect") for text in commands):
        sys.stdout.write(json.dumps(bronze(spark, table_format, lake)) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
