"""The output of an audit."""

from __future__ import annotations

import base64
import datetime as dt
import io
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.audit.result import LISTED
from pipeline.lake.files import Files
from pipeline.lake.spark_versions import to_arrow
from pipeline.lake.tables import WRITING
from pipeline.uris import absolute

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from pipeline.audit.exceptions import Listed
    from pipeline.audit.result import AuditResult
    from pipeline.settings import AuditSettings

VERDICT = "audit.json"
_AT_ONCE = 4  # tables written at the same time


class Output:
    """The folder of the results. While it has no ``audit.json``, an audit is running or has failed."""

    def __init__(self, spark: SparkSession, settings: AuditSettings) -> None:
        self.folder = absolute(settings.out or settings.audit)
        self._files = Files(spark)

    def begin(self) -> None:
        """Remove the last verdict, because the files that follow do not belong to it."""
        self._files.delete(f"{self.folder}/{VERDICT}")

    def tables(self, result: AuditResult, tables: dict[str, DataFrame], exceptions: dict[str, Listed]) -> None:
        """Write the tables, and copy the beginning of each table of exceptions into the result."""
        # In parallel: most are small, and most of their time is planning.
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            listed = {name: pool.submit(self._list, name, one) for name, one in exceptions.items()}
            written = [pool.submit(self._write, name, frame, frame.schema) for name, frame in tables.items()]
        for name, rows in listed.items():
            if (found := rows.result()) is not None:
                result.lists[name] = found
        for one in written:
            one.result()

    def _list(self, name: str, listed: Listed) -> list[dict[str, Any]] | None:
        """Write a table of exceptions. Return the first entries for JSON, or None if there are known to be none."""
        if listed.frame is None:
            self._write_here(name, to_arrow_schema(listed.schema).empty_table())
            return None
        return [_plain(row) for row in self._write(name, listed.frame, listed.schema)]

    def _write(self, name: str, frame: DataFrame, schema: StructType) -> list[dict[str, Any]]:
        """Write a table. Return its first rows."""
        # Most are small: one fetched to the driver is one Spark job, and one written by Spark is several.
        first = to_arrow(frame.limit(LISTED + 1)).cast(to_arrow_schema(schema))
        if first.num_rows <= LISTED:
            self._write_here(name, first)
        else:
            frame.write.options(**WRITING).mode("overwrite").parquet(f"{self.folder}/{name}")
        rows: list[dict[str, Any]] = first.slice(0, LISTED).to_pylist()
        return rows

    def _write_here(self, name: str, table: pa.Table) -> None:
        """Write a small table without Spark."""
        buffer = io.BytesIO()
        pq.write_table(table, buffer)
        self._files.delete(f"{self.folder}/{name}")
        self._files.write_bytes(f"{self.folder}/{name}/part-0.parquet", buffer.getvalue())
        self._files.write(f"{self.folder}/{name}/_SUCCESS", "")

    def text(self, name: str, content: str) -> None:
        """Write a text."""
        self._files.write(f"{self.folder}/{name}", content)

    def finish(self, result: AuditResult) -> None:
        """Write the verdict, last."""
        self._files.write_json(f"{self.folder}/{VERDICT}", result.as_json())


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Return values for JSON: times as text, bytes in base64."""
    return {name: _value(value) for name, value in row.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dt.datetime):
        return value.astimezone(dt.UTC).isoformat()
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(bytes(value)).decode()
    return value
