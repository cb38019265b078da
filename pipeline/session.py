"""Spark sessions: the one of the command line, and one beside the caller's."""

from __future__ import annotations

import atexit
import contextlib
import os
import re
import shlex
import shutil
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession
from pyspark.sql.utils import is_remote

from pipeline.errors import JobError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pipeline.settings import InputFormat, TableFormat

ROOT = Path(__file__).parents[1]
# The packages must match Spark: its exact version, or its release line.
_LINE = ".".join(pyspark.__version__.split(".")[:2])
_SCALA = "2.12" if _LINE.startswith("3.") else "2.13"
_DELTA = {"3.5": "3.3.2"}  # by Spark's release line; else both have the same
_KAFKA = f"org.apache.spark:spark-sql-kafka-0-10_{_SCALA}:{pyspark.__version__}"
_PACKAGES = {
    "parquet": [],
    "delta": [f"io.delta:delta-spark_{_SCALA}:{_DELTA.get(_LINE, f'{_LINE}.0')}"],
    "iceberg": [f"org.apache.iceberg:iceberg-spark-runtime-{_LINE}_{_SCALA}:1.10.1"],
}
_SHUFFLE = "spark.sql.shuffle.partitions"
_ROWS_A_TASK = 1_000_000
_FORMAT_JAR = re.compile(r"(delta|iceberg)-")  # prefix of the name of a jar that only one format needs
_PACKAGES_LINE = re.compile(r"^\s*spark\.jars\.packages[\s=:]+(\S+)", re.MULTILINE)  # in Spark's properties files

_JAVA = "spark.driver.extraJavaOptions"

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    # Batches for Python are limited in bytes, too, because payloads may be large.
    "spark.sql.execution.arrow.maxBytesPerBatch": "32m",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # The current form of Parquet timestamps. It is faster to read than Spark's old default, and UTC for all readers.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Two simultaneous attempts of a task that sends would fence each other.
    "spark.speculation": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.streaming.metricsEnabled": "true",
}
# For a few rows, Spark spends its time on planning again, on compiling what it generates, and on many empty tasks.
_SMALL_SETTINGS = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.ui.enabled": "false",
    _SHUFFLE: "2",
}
# The JVM ends before the code of its second compiler has paid for itself.
_SMALL_JAVA = "-XX:TieredStopAtLevel=1"
# An archive of Spark's loaded classes, if one was made. A JVM that cannot use it starts without it.
CLASSES = ROOT / f".runtime/spark-classes-{pyspark.__version__}.jsa"
_EXTENSIONS = "spark.sql.extensions"
_FORMAT_SETTINGS: dict[str, dict[str, str]] = {
    "parquet": {},
    "delta": {
        _EXTENSIONS: "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {_EXTENSIONS: "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"},
}


def build_session(
    name: str,
    *,
    master: str | None = None,
    table_format: TableFormat = "parquet",
    input_format: InputFormat = "parquet",
    small: bool = False,
    options: Mapping[str, str] | None = None,
) -> SparkSession:
    """Return the session; the first call creates it.

    It can use tables of ``table_format`` and read one of ``input_format``. Without ``master``, that of spark-submit
    counts, else ``local[*]``. ``small`` means that the job has few rows: a local session then starts and plans faster.
    ``options`` are more Spark settings, for tests. Call it on the main thread, before other threads start.
    """
    _find_programs(master)
    builder = SparkSession.builder.appName(name)
    if master is not None:
        builder = builder.master(master)
    formats = sorted({table_format, input_format} & _FORMAT_SETTINGS.keys())
    settings = {**_SETTINGS, **log4j_options(), **_jars(*formats), **_format_settings(formats)}
    if small and _is_ours(master):
        java = [settings.get(_JAVA, ""), _SMALL_JAVA, *_archive()]
        settings |= {**_SMALL_SETTINGS, _JAVA: " ".join(filter(None, java))}
    for key, value in {**settings, **(options or {})}.items():
        builder = builder.config(key, value)
    with _in_temp_dir():
        return builder.getOrCreate()


def private_session(spark: SparkSession) -> SparkSession:
    """Return a session beside the caller's, with the settings that the jobs need. The caller's stays as it is."""
    if is_remote():
        raise JobError(
            "the jobs need Spark's classic API, and this is a Spark Connect session: run them on the cluster"
        )
    private = spark.newSession()
    for key, value in _SETTINGS.items():
        if private.conf.isModifiable(key):
            private.conf.set(key, value)
    return private


def set_shuffle_partitions(spark: SparkSession, rows: int) -> None:
    """Give each task of a later shuffle of ``rows`` rows about a million rows, unless the user has set the number.

    Spark's default is 200 tasks. Spark merges small ones, but not if the result is cached. Measured: this halves the
    time of an audit of 20 M requests.
    """
    if not spark.sparkContext.getConf().contains(_SHUFFLE):
        spark.conf.set(_SHUFFLE, max(spark.sparkContext.defaultParallelism, -(-rows // _ROWS_A_TASK)))


def log4j_options() -> dict[str, str]:
    """Return Log4j options that hide Spark's two traces per failed task. The command reports an error in one line."""
    file = Path(__file__).with_name("log4j2.properties")
    if "SPARK_CONF_DIR" in os.environ or _under_spark_submit():
        return {}
    return {_JAVA: f"-Dlog4j2.configurationFile={file.as_uri()}"}


def _archive() -> list[str]:
    """Return the option with which the JVM uses the archive. Measured: ``pipeline run`` of 200 rows is 4 s faster."""
    # If it does not fit, the JVM would say so on stdout, which is for results.
    return ["-Xlog:disable", f"-XX:SharedArchiveFile={shlex.quote(str(CLASSES))}"] if CLASSES.exists() else []


def _is_ours(master: str | None) -> bool:
    """Return whether the session is local, and no other program or file sets it up."""
    local = master is None or master.startswith("local")
    return local and "SPARK_CONF_DIR" not in os.environ and not _under_spark_submit()


def _under_spark_submit() -> bool:
    """Return whether the JVM is already running, with its settings."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _find_programs(master: str | None) -> None:
    """Set the programs to start. By default, Spark starts the first ``python3`` and ``java`` on the PATH."""
    if not _under_spark_submit() and (master is None or master.startswith("local")):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # on a cluster, this path may not exist
    java = ROOT / ".runtime/java"
    if "JAVA_HOME" not in os.environ and java.exists():
        os.environ["JAVA_HOME"] = str(java)


def _format_settings(formats: Iterable[str]) -> dict[str, str]:
    """Return the settings for tables of several formats, which may each extend Spark's SQL."""
    found = {name: value for kind in formats for name, value in _FORMAT_SETTINGS[kind].items()}
    extensions = [_FORMAT_SETTINGS[kind][_EXTENSIONS] for kind in formats if _FORMAT_SETTINGS[kind]]
    return found | ({_EXTENSIONS: ",".join(extensions)} if extensions else {})


def _jars(*formats: str) -> dict[str, str]:
    """Return the connector and the formats' packages: from the folder that scripts/setup fills, else by coordinates.

    Under spark-submit they must be among its ``--packages`` or ``--jars``, because the JVM is already running.
    """
    if _under_spark_submit():
        return {}
    jars = sorted((ROOT / ".runtime" / f"spark-jars-{pyspark.__version__}").glob("*.jar"))
    site = _site_packages()
    if not jars:
        return {"spark.jars.packages": ",".join([_KAFKA, *_packages(formats), *site])}
    kinds = {jar: kind[1] if (kind := _FORMAT_JAR.match(jar.name)) else None for jar in jars}
    found = {"spark.jars": ",".join(str(jar) for jar, kind in kinds.items() if kind in {None, *formats})}
    if absent := _packages(set(formats).difference(kinds.values())):
        found["spark.jars.packages"] = ",".join([*absent, *site])
    return found


def _packages(formats: Iterable[str]) -> list[str]:
    return [package for kind in sorted(formats) for package in _PACKAGES[kind]]


def _site_packages() -> list[str]:
    """Return the packages in the site's ``spark-defaults.conf``, which our setting would replace."""
    file = Path(os.environ.get("SPARK_CONF_DIR", os.devnull)) / "spark-defaults.conf"
    return _PACKAGES_LINE.findall(file.read_text())[-1:] if file.is_file() else []


@contextlib.contextmanager
def _in_temp_dir() -> Iterator[None]:
    """Change to a temporary directory: the JVM writes ``artifacts/`` into the directory in which it starts."""
    before = Path.cwd()
    folder = tempfile.mkdtemp(prefix="pipeline-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)
