"""Bronze as a Delta or Iceberg table. Each batch is a commit that names the batch."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.lake.parquet_batches import ends_of
from pipeline.lake.schemas import BRONZE
from pipeline.lake.tables import ICEBERG_WRITING, sql_name, table_exists

if TYPE_CHECKING:
    import datetime as dt

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.lake.checkpoint import Positions
    from pipeline.settings import Table

_BY_DAY = "date"  # partition column of the table
_COMMITS = 20  # of a Delta table, among which a commit that was just made is looked for
_QUERY, _BATCH = "pipeline-query", "pipeline-batch"  # properties of an Iceberg snapshot


class VersionedTable:
    """The table. ``rows`` come from one version, so that all parts of an audit read the same records."""

    def __init__(self, spark: SparkSession, table: Table) -> None:
        self._spark = spark
        self._table = table
        self._name = sql_name(table)
        self._read: tuple[Any, Positions] | None = None  # the version and its ends

    def exists(self) -> bool:
        """Return whether anything was collected."""
        return table_exists(self._spark, self._table) and self._version() is not None

    def rows(self) -> DataFrame:
        """Return all rows of the newest version."""
        version = self._version()
        table = self._spark.sql(f"SELECT * FROM {self._name} VERSION AS OF {version}")  # noqa: S608 - the lake's own name
        # An older table lacks columns that later versions added.
        added = {f.name: F.lit(None).cast(f.dataType) for f in BRONZE if f.name not in table.columns}
        return table.withColumns(added) if added else table

    def ends(self) -> Positions:
        """Return the end of the table, by topic and partition. Read the table only if it has changed."""
        if not self.exists():
            return {}
        version = self._version()
        if self._read is None or self._read[0] != version:
            self._read = (version, ends_of(self.rows()))
        return self._read[1]

    def write(self, rows: DataFrame, query: str, batch: int) -> bool:
        """Append a batch. Return False if it was appended before."""
        if self._table.format == "delta":
            return self._append_delta(rows, query, batch)
        if not table_exists(self._spark, self._table):
            marked = _marked(rows.writeTo(self._table.name).using("iceberg"), query, batch)
            marked.options(**ICEBERG_WRITING).partitionedBy(F.col(_BY_DAY)).create()
        elif self._has(query, batch):
            return False
        else:
            _marked(rows.writeTo(self._table.name), query, batch).options(**ICEBERG_WRITING).append()
        return True

    def compact(self, before: dt.date) -> None:
        """Merge the days before ``before`` into few files, with the means of the format."""
        condition = f"{_BY_DAY} < DATE'{before.isoformat()}'"
        if self._table.format == "iceberg":
            catalog, name = self._table.name.split(".", 1)
            self._spark.sql(
                f"CALL {catalog}.system.rewrite_data_files(table => '{name}', where => \"{condition}\")"
            ).collect()
            return
        detail: Any = self._spark.sql(f"DESCRIBE DETAIL {self._name}").first()
        where = f" WHERE {condition}" if _BY_DAY in detail["partitionColumns"] else ""
        self._spark.sql(f"OPTIMIZE {self._name}{where}")

    def _append_delta(self, rows: DataFrame, query: str, batch: int) -> bool:
        attempt = uuid.uuid4().hex
        writer = rows.write.format("delta").mode("append").option("mergeSchema", "true")
        writer = writer.option("txnAppId", query).option("txnVersion", batch)
        writer = writer.option("userMetadata", attempt)
        if not table_exists(self._spark, self._table):
            writer = writer.partitionBy(_BY_DAY)
        if self._table.in_catalog:
            writer.saveAsTable(self._table.name)
        else:
            writer.save(self._table.name)
        # Delta does not say whether it has left out a batch that it knows. If more commits than these have followed
        # this one, it counts as left out, which only makes the caller count the table again.
        newest = self._spark.sql(f"DESCRIBE HISTORY {self._name} LIMIT {_COMMITS}")
        return not newest.where(F.col("userMetadata") == attempt).isEmpty()

    def _has(self, query: str, batch: int) -> bool:
        """Return whether a snapshot holds this batch. Only a checkpoint's newest batch is ever repeated."""
        snapshots = self._spark.table(f"{self._table.name}.snapshots")
        query_of, batch_of = (F.try_element_at("summary", F.lit(name)) for name in (_QUERY, _BATCH))
        mine = (query_of == query) & (batch_of == str(batch))
        return not snapshots.where(mine).isEmpty()

    def _version(self) -> Any:
        if self._table.format == "delta":
            newest: Any = self._spark.sql(f"DESCRIBE HISTORY {self._name} LIMIT 1").first()
            return newest["version"]
        refs = self._spark.table(f"{self._table.name}.refs").where("name = 'main'").first()
        return None if refs is None else refs["snapshot_id"]


def _marked(writer: Any, query: str, batch: int) -> Any:
    return writer.option(f"snapshot-property.{_QUERY}", query).option(f"snapshot-property.{_BATCH}", str(batch))
