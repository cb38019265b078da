"""The bronze table: every record of an ack topic and its dead-letter topic, for all jobs that use them.

``_queries/<query>.json`` records, for each query of a checkpoint, the place of the checkpoint, the topics it reads, the
offsets it has reached and how many batches it has stored. ``_begins.json`` records where collecting began.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.lake.files import Files
from pipeline.lake.parquet_batches import ParquetBatches
from pipeline.lake.schemas import BRONZE
from pipeline.lake.submission import Submission
from pipeline.lake.tables import local_dataframe
from pipeline.lake.versioned import VersionedTable

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from pyspark.sql import Column, DataFrame, SparkSession

    from pipeline.lake.checkpoint import Positions
    from pipeline.settings import Common

    R = TypeVar("R")

PLACE = ["topic", "partition", "offset"]  # identifies a record
_BEGINS = "_begins.json"
_FACTS = ".json"  # ending of the name of a query's facts
_GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "PATH_NOT_FOUND", "does not exist")
_TRIES = 5


class Bronze:
    """The bronze table of a job's ack topic. JobError if the topic is unknown, or for a table of an earlier version."""

    def __init__(self, spark: SparkSession, common: Common) -> None:
        self._spark = spark
        self._common = common
        self.files = Files(spark)
        old = f"{common.root}/bronze/job={common.job}"
        if self.files.exists(old):
            raise JobError(f"{old} was written by an earlier version: collect the job into another --lake")
        table = common.table("bronze", f"topic={_ack_topic(spark, common)}")
        self.path = table.folder
        self.parquet = ParquetBatches(spark, table.folder) if table.format == "parquet" else None
        self.versioned = VersionedTable(spark, table) if self.parquet is None else None
        self._store: Any = self.parquet or self.versioned

    # -- records about it

    def queries(self) -> dict[str, dict[str, Any]]:
        """Return the recorded facts of each query of a checkpoint."""
        # A killed writer may have left a draft beside them (Files.write_bytes).
        found = [entry for entry in self.files.entries(f"{self.path}/_queries") if entry.name.endswith(_FACTS)]
        return {entry.name.removesuffix(_FACTS): self.files.read_json(entry.uri) for entry in found}

    def record_query(self, query: str, facts: dict[str, Any]) -> None:
        """Record the facts of a query."""
        self.files.write_json(f"{self.path}/_queries/{query}{_FACTS}", facts)

    def covered(self, query: str | None = None) -> Positions:
        """Return, by partition, the offset up to which other queries have stored everything, markers included.

        A query that has recorded a batch whose folder is incomplete does not count.
        """
        ends: Positions = {}
        queries = self.queries()  # before the folders: a batch is recorded once it is complete
        left = self.parquet.unfinished() if self.parquet is not None else []
        torn = {part.query for part in left if is_recorded(queries.get(part.query, {}), part.batch)}
        for other, facts in queries.items():
            for topic, offsets in facts.get("ends", {}).items() if other not in {query, *torn} else ():
                known = ends.setdefault(topic, {})
                known.update({int(p): max(end, known.get(int(p), 0)) for p, end in offsets.items()})
        return ends

    def begins(self) -> Positions:
        """Return the offsets where collecting began, by topic and partition. Empty if it never began."""
        path = f"{self.path}/{_BEGINS}"
        recorded = self.files.read_json(path) if self.files.exists(path) else {}
        return {topic: {int(p): offset for p, offset in offsets.items()} for topic, offsets in recorded.items()}

    def record_begins(self, begins: Mapping[str, Mapping[int, int]]) -> None:
        """Record where collecting began."""
        self.files.write_json(f"{self.path}/{_BEGINS}", begins)

    # -- reading and writing

    def exists(self) -> bool:
        """Return whether anything was collected."""
        return bool(self._store.exists())

    def stored(self) -> DataFrame:
        """Return all rows, doubles of records that two checkpoints have collected included. Columns as ``BRONZE``."""
        if not self.exists():
            return local_dataframe(self._spark, [], BRONZE)
        rows: DataFrame = self._store.rows().select(*BRONZE.fieldNames())
        return rows

    def read(self) -> DataFrame:
        """Return the job's view: one row for each record since the job was submitted."""
        table = self.stored()
        submission = Submission.read(self._spark, self._common)
        if submission is not None and submission.ends:
            table = table.where(~before(submission.ends))
        # A checkpoint never stores a record twice, and the next one continues where the table ends. Doubles have other
        # causes, such as two checkpoints at once. Looking for those causes is cheaper than removing doubles.
        return table.dropDuplicates(PLACE) if self._may_have_doubles() and has_doubles(table) else table

    def _may_have_doubles(self) -> bool:
        """Return whether several jobs have collected at the same time, or compacted."""
        return len(self.queries()) > 1 or (self.parquet is not None and self.parquet.compactions() > 1)

    def lost_rows(self) -> int | None:
        """Return how many collected rows the table has lost. None if the numbers were not recorded.

        Delta and Iceberg know their files, and raise an error if one is missing.
        """
        return None if self.parquet is None else retry_if_files_replaced(self.parquet.lost_rows)

    def lost_batches(self) -> int:
        """Return how many batches a Parquet table has lost as a whole."""
        if self.parquet is None:
            return 0
        # Before the folders are listed: a batch is recorded once it is complete.
        recorded = {query: facts.get("batches") or 0 for query, facts in self.queries().items()}
        return self.parquet.lost_batches(recorded)

    def ends(self) -> Positions:
        """Return the end of the table, by topic and partition. A second call reads only new rows."""
        ends: Positions = self._store.ends()
        return ends

    def write(self, rows: DataFrame, query: str, batch: int) -> bool:
        """Write a batch. Return False, and leave the table as it is, if an earlier attempt has stored it.

        Observations of ``rows`` then never get a value.
        """
        return bool(self._store.write(rows, query, batch))


def _ack_topic(spark: SparkSession, common: Common) -> str:
    kafka: Any = getattr(common, "kafka", None)
    if kafka is not None:
        return str(kafka.ack_topic)
    submission = Submission.read(spark, common)
    if submission is None or not submission.ack_topic:
        raise JobError(f"job {common.job!r} was not submitted from this lake: set the KAFKA_* variables")
    return submission.ack_topic


def is_recorded(facts: Mapping[str, Any], batch: int) -> bool:
    """Return whether a query's facts say that a batch is stored. Those of an earlier version may."""
    batches: int | None = facts.get("batches")
    return batches is None or batch < batches


def before(positions: Positions | Mapping[str, Mapping[int, int]]) -> Column:
    """Return whether a record stands before these offsets, by topic and partition."""
    ends = [
        F.struct(F.lit(f"{topic}/{partition}"), F.lit(offset).cast("long"))
        for topic, offsets in positions.items()
        for partition, offset in offsets.items()
        if offset > 0
    ]
    if not ends:
        return F.lit(False)  # noqa: FBT003 - a column's value
    known = F.map_from_entries(F.array(*ends))
    place = F.concat_ws("/", "topic", F.col("partition").cast("string"))
    return F.coalesce(F.col("offset") < F.try_element_at(known, place), F.lit(False))  # noqa: FBT003


def has_doubles(table: DataFrame) -> bool:
    """Return whether any record is there twice. Exact: compare each bucket's rows with its distinct offsets."""
    counted = table.groupBy("topic", "partition", F.bitmap_bucket_number("offset").alias("bucket")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position("offset"))).alias("offsets"),
    )
    return not counted.where(F.col("rows") != F.col("offsets")).isEmpty()


def retry_if_files_replaced(read: Callable[[], R]) -> R:
    """Return the result of ``read``. Call it again if files that it had listed were replaced meanwhile.

    Compaction replaces files, and so does the repetition of a killed batch. Spark then raises an error. It never
    returns a smaller table.
    """
    for _ in range(_TRIES - 1):
        try:
            return read()
        except Exception as error:  # Spark's exceptions, and those of the bridge to Java
            if not any(sign in str(error) for sign in _GONE):
                raise
    return read()
