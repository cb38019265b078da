"""Lakes in a catalog (``--lake catalog.schema``), and Iceberg's catalog for a lake that is a folder."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from pyspark.errors import PySparkException

from pipeline.errors import JobError
from pipeline.settings import PATH_CATALOG, in_catalog

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipeline.settings import Common

_FILES = "_pipeline"  # inside the schema's folder
S = TypeVar("S", bound="Common")


def prepared(spark: SparkSession, settings: S) -> S:
    """Return the settings with the folder of the lake's files. Set up the session so that it finds the tables."""
    if settings.table_format == "iceberg" and not in_catalog(settings.lake):
        for name, value in _path_catalog(settings.lake).items():
            spark.conf.set(name, value)
    if not in_catalog(settings.lake) or settings.files is not None:
        return settings
    return replace(settings, files=f"{_location(spark, settings.lake)}/{_FILES}")


def _path_catalog(lake: str) -> dict[str, str]:
    key = f"spark.sql.catalog.{PATH_CATALOG}"
    return {
        key: "org.apache.iceberg.spark.SparkCatalog",
        f"{key}.type": "hadoop",
        f"{key}.warehouse": lake,
        f"{key}.cache-enabled": "false",
    }


def _location(spark: SparkSession, lake: str) -> str:
    """Return the folder of a schema's tables. Raise JobError if the schema does not exist or has no location."""
    try:
        rows = spark.sql(f"DESCRIBE NAMESPACE {lake}").collect()
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise JobError(f"--lake {lake} is not a schema that Spark knows: {reason[:300]}") from error
    found = {str(row[0]).lower(): row[1] for row in rows}.get("location")
    if not found:
        raise JobError(f"the schema {lake} has no location: set --files to a folder for metadata and checkpoints")
    return str(found).rstrip("/")
