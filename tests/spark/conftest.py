"""Fixtures of the Spark tests: one session for all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pipeline.session import build_session, log4j_options
from tests import hypothesis_profiles
from tests.spark.support.programs import DRIVER, lower_priority

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

hypothesis_profiles.load()
# Spark's Python workers sometimes import pandas-on-Spark, which requires this variable.
os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
JAVA = "spark.driver.extraJavaOptions"
# For tables of a few rows, Spark spends its time on repeated planning and on the compilation of generated code.
# Measured on a job of `answers` that takes 6.7 s of CPU: 5.4 s without the former, 6.0 s without the latter. The
# programs that tests start keep Spark's defaults.
TINY = {
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}
SECONDS = 480  # the first test of a process also starts the JVM, and streams are slow on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give the Spark tests more time than others, unless a test has its own time limit."""
    for item in items:
        if "spark" in item.path.parts and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Yield the session. It has more threads than cores, as tasks wait for Kafka. It retries tasks like a cluster."""
    folder = tmp_path_factory.mktemp("spark")
    options = {
        **TINY,
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        JAVA: f"{log4j_options().get(JAVA, '')} {DRIVER}",
    }
    session = build_session("tests", master="local[4,4]", options=options)
    lower_priority(session.sparkContext._gateway.proc.pid)  # type: ignore[union-attr]  # set by Spark's launcher
    yield session
    session.stop()
