"""The settings of the Spark session, as the jobs need them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline import session
from pipeline.lake.sources import is_small
from pipeline.session import _jars
from pipeline.settings import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession


def test_times_are_utc_and_bad_casts_are_errors(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"


def test_tasks_use_the_python_of_the_driver(spark: SparkSession) -> None:
    def interpreter(batches: Iterable[Any]) -> Iterator[Any]:
        import pyarrow as pa  # noqa: PLC0415 - runs in Spark's Python

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"python": [sys.executable]})

    (row,) = spark.range(1).coalesce(1).mapInArrow(interpreter, "python string").collect()
    assert row.python == sys.executable


def test_the_session_leaves_no_file_in_the_current_directory(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert spark.range(3).agg(F.sum("id")).collect() == [(3,)]
    assert not list(tmp_path.iterdir())


def test_the_packages_in_the_sites_configuration_are_fetched_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-defaults.conf").write_text(
        "spark.master yarn\nspark.jars.packages=of.the:site:1,another:one:2\n"
    )
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    ours, *site = _jars("iceberg")["spark.jars.packages"].split(",")
    assert ours.startswith("org.apache.iceberg:")
    assert site == ["of.the:site:1", "another:one:2"]


def test_the_kafka_connector_is_loaded(spark: SparkSession) -> None:
    source = spark.read.format("kafka").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "t")
    assert "offset" in source.load().columns


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The settings of the sessions that the test builds. None is created."""
    given: dict[str, str] = {}

    class Builder:
        def config(self, key: str, value: str) -> Builder:
            given[key] = value
            return self

        def getOrCreate(self) -> None:  # noqa: N802 - Spark's name
            """Create nothing."""

        def __getattr__(self, _name: str) -> Any:
            return lambda _value: self

    monkeypatch.setattr(session, "SparkSession", type("Session", (), {"builder": Builder()}))
    return given


@pytest.mark.parametrize(("master", "set_up_by"), [(None, None), ("local[2]", None), ("yarn", None), (None, "site")])
def test_only_a_local_session_without_site_configuration_is_set_up_for_a_small_job(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], master: str | None, set_up_by: str | None
) -> None:
    if set_up_by:
        monkeypatch.setenv("SPARK_CONF_DIR", set_up_by)
    session.build_session("job", master=master, small=True)
    ours = master != "yarn" and not set_up_by
    assert ("spark.sql.codegen.wholeStage" in given) == ours
    assert ("-XX:TieredStopAtLevel=1" in given.get("spark.driver.extraJavaOptions", "")) == ours


def test_an_archive_of_classes_is_used_if_it_exists(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], tmp_path: Path
) -> None:
    monkeypatch.setattr(session, "CLASSES", tmp_path / "the classes.jsa")
    session.build_session("job", small=True)
    assert "SharedArchiveFile" not in given["spark.driver.extraJavaOptions"]
    (tmp_path / "the classes.jsa").touch()
    session.build_session("job", small=True)
    assert f"-XX:SharedArchiveFile='{tmp_path}/the classes.jsa'" in given["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize("lake", ["parquet", "delta", "iceberg"])
def test_a_delta_input_table_can_be_read_with_a_lake_of_any_format(given: dict[str, str], lake: Any) -> None:
    session.build_session("job", table_format=lake, input_format="delta")
    extensions = given["spark.sql.extensions"].split(",")
    assert "io.delta.sql.DeltaSparkSessionExtension" in extensions
    assert any("iceberg" in name for name in extensions) == (lake == "iceberg")
    assert given["spark.sql.catalog.spark_catalog"] == "org.apache.spark.sql.delta.catalog.DeltaCatalog"
    assert "delta-spark" in given["spark.jars"]
    assert ("iceberg" in given.get("spark.jars.packages", "") + given["spark.jars"]) == (lake == "iceberg")


def test_a_job_is_small_if_its_input_is_a_file_of_at_most_a_megabyte(tmp_path: Path) -> None:
    small, large = tmp_path / "small", tmp_path / "large"
    small.write_bytes(bytes(1_000_000))
    large.write_bytes(bytes(1_000_001))
    sources = [Source(uri=str(uri), id="id", payload="p") for uri in (small, large, tmp_path, "s3a://bucket/table")]
    assert [is_small(source) for source in (*sources, None)] == [True, False, False, False, False]
