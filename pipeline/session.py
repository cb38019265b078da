"""The one place where a Spark session is made."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.settings import TableFormat

ROOT = Path(__file__).parents[1]
# The connector and Delta must fit the Spark that loads them.
_SCALA = "2.13"
_KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{pyspark.__version__}"
_DELTA = f"io.delta:delta-spark_{_SCALA}:{pyspark.__version__}"
_SHUFFLE = "spark.sql.shuffle.partitions"
_ROWS_A_TASK = 1_000_000
_DELTA_JAR = re.compile(r"delta-")

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Rows are handed to Python by the size of their bytes, not only by their number: payloads may be large.
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # As the format has it today: quicker to read than Spark's old default, and UTC to every other reader.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # A second attempt of a task that sends would only be fenced: a waste.
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "true",
}
_DELTA_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}


def build_session(
    name: str,
    *,
    master: str | None = None,
    table_format: TableFormat = "parquet",
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """The session, made on the first call. Without ``master`` spark-submit's counts, or else ``local[*]``.

    ``options`` are further settings of Spark, for tests. To be called from the main thread, before others are started.
    """
    _find_programs()
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    settings = {**_SETTINGS, **_quiet(), **_jars(table_format), **(_DELTA_SETTINGS if table_format == "delta" else {})}
    for key, value in {**settings, **(options or {})}.items():
        builder = builder.config(key, value)
    with _elsewhere():
        return builder.getOrCreate()


def divide(spark: SparkSession, rows: int) -> None:
    """From now on a task of a shuffle gets about a million of so many rows, unless the user has set how many there are.

    Spark makes 200 tasks by default. It joins small ones by itself, but not where the result is kept; measured: half of
    the time of an audit of 20 M requests.
    """
    if not spark.sparkContext.getConf().contains(_SHUFFLE):
        spark.conf.set(_SHUFFLE, max(spark.sparkContext.defaultParallelism, -(-rows // _ROWS_A_TASK)))


def _quiet() -> dict[str, str]:
    """What goes wrong is told by the command, in one line; Spark logs each failed task with two traces."""
    file = Path(__file__).with_name("log4j2.properties")
    if "SPARK_CONF_DIR" in os.environ or _under_spark_submit():
        return {}
    return {"spark.driver.extraJavaOptions": f"-Dlog4j2.configurationFile={file.as_uri()}"}


def _under_spark_submit() -> bool:
    """Whether the JVM runs already, with settings of its own."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _find_programs() -> None:
    """Spark starts the first ``python3`` and ``java`` of the PATH unless it is told which."""
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java = ROOT / ".runtime/java"
    if "JAVA_HOME" not in os.environ and java.exists():
        os.environ["JAVA_HOME"] = str(java)


def _jars(table_format: TableFormat) -> dict[str, str]:
    """The connector: from the folder that scripts/setup fills, else by its coordinates.

    Under spark-submit it has to be among that one's ``--packages`` or ``--jars``: the JVM runs already.
    """
    if _under_spark_submit():
        return {}
    delta = table_format == "delta"
    jars = sorted((ROOT / ".runtime" / f"spark-jars-{pyspark.__version__}").glob("*.jar"))
    if jars:
        return {"spark.jars": ",".join(str(jar) for jar in jars if delta or not _DELTA_JAR.match(jar.name))}
    return {"spark.jars.packages": ",".join([_KAFKA, *([_DELTA] if delta else [])])}


@contextlib.contextmanager
def _elsewhere() -> Iterator[None]:
    """The JVM keeps the directory it was started in, and writes ``artifacts/`` there: not where the user stands."""
    before = Path.cwd()
    folder = tempfile.mkdtemp(prefix="pipeline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
