"""Fixtures of the Spark tests: one session for all of them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from pipeline.session import _quiet, build_session
from tests import hypothesis_profiles
from tests.spark.support.programs import DRIVER

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

hypothesis_profiles.load()
# Spark's Python workers import pandas-on-Spark in places, which asks for this.
os.environ.setdefault("PYARROW_IGNORE_TIMEZONE", "1")
JAVA = "spark.driver.extraJavaOptions"
SECONDS = 240  # the first test of a process also starts the JVM, and streams take their time on a busy machine


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark's tests get more time than others, unless they say themselves how much they need."""
    for item in items:
        if "spark" in item.path.parts and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(SECONDS))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session. More threads than cores, for tasks wait for Kafka; a task is retried as on a cluster."""
    folder = tmp_path_factory.mktemp("spark")
    options = {
        "spark.sql.shuffle.partitions": "2",
        "spark.default.parallelism": "2",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        JAVA: f"{_quiet().get(JAVA, '')} {DRIVER}",
    }
    session = build_session("tests", master="local[4,4]", options=options)
    yield session
    session.stop()
