"""Bronze as plain Parquet on a local disk or HDFS. Each batch is a folder.

The folder is ``query=<id>/batch=<number>``. A repeated batch replaces it only if it is incomplete: readers may use a
complete one, and Kafka may have deleted its records. The id is that of a checkpoint's query, so two checkpoints never
write to the same folder. Compaction adds further queries, each with a list of the folders that it replaces. An empty
file ``_rows-<number>`` says how many rows a folder has, because Spark ignores files that are missing from it or empty.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.lake.files import Files
from pipeline.lake.schemas import BRONZE
from pipeline.lake.tables import READING, WRITING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.lake.checkpoint import Positions

COMPACT = "compact-"  # prefix of the name of a query that compaction made
REPLACES = "_replaces.json"
_DONE = "_SUCCESS"
_ROWS = "_rows-"  # with "=" instead, Spark would take it for data


class Part(NamedTuple):
    """A complete folder of the table."""

    query: str
    batch: int
    uri: str

    @property
    def name(self) -> str:
        """Return the path within the table."""
        return f"query={self.query}/batch={self.batch}"


class ParquetBatches:
    """The table in a folder."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self.files = Files(spark)
        self._ends: Positions = {}
        self._seen: set[str] = set()  # folders already counted in _ends

    def parts(self) -> list[Part]:
        """Return the folders that make up the table."""
        while True:
            gone = self._replaced()
            found = [_part(uri) for uri in self.files.glob(f"{self.path}/query=*/batch=*/{_DONE}")]
            compacted = {part.query for part in found if part.query.startswith(COMPACT)}
            # Otherwise a compaction was published between the two listings, and rows would appear twice or not at all.
            if compacted <= gone.keys():
                names = set().union(*gone.values())
                return sorted(part for part in found if part.name not in names)

    def compactions(self) -> int:
        """Return the number of compactions whose folders are part of the table."""
        return len({part.query for part in self.parts() if part.query.startswith(COMPACT)})

    def replaced(self) -> list[str]:
        """Return the folders that compaction has replaced but not removed yet."""
        names = set().union(*self._replaced().values())
        folders = [_part(f"{uri}/{_DONE}") for uri in self.files.glob(f"{self.path}/query=*/batch=*")]
        return [part.uri for part in folders if part.name in names]

    def _replaced(self) -> dict[str, list[str]]:
        """Return the names of the folders that each compaction query replaces."""
        lists = [self.files.read_json(uri) for uri in self.files.glob(f"{self.path}/query={COMPACT}*/{REPLACES}")]
        return {entry["query"]: entry["replaces"] for entry in lists}

    def unfinished(self) -> list[Part]:
        """Return the incomplete folders. A writer fills them, or was killed. The pipeline's readers skip them."""
        complete = set(self.files.glob(f"{self.path}/query=*/batch=*/{_DONE}"))
        folders = [_part(f"{uri}/{_DONE}") for uri in self.files.glob(f"{self.path}/query=*/batch=*")]
        return [part for part in folders if f"{part.uri}/{_DONE}" not in complete]

    def exists(self) -> bool:
        """Return whether anything was collected."""
        return bool(self.parts())

    def rows(self) -> DataFrame:
        """Return all rows."""
        return self._read([part.uri for part in self.parts()])

    def ends(self) -> Positions:
        """Return the end of the table, by topic and partition. A second call reads only new folders."""
        new = [part.uri for part in self.parts() if part.uri not in self._seen]
        if new:
            for topic, partitions in ends_of(self._read(new)).items():
                known = self._ends.setdefault(topic, {})
                known.update({p: max(end, known.get(p, 0)) for p, end in partitions.items()})
            self._seen.update(new)
        return self._ends

    def write(self, rows: DataFrame, query: str, batch: int) -> bool:
        """Write a batch in place of an incomplete attempt at it. Return False if it is complete already."""
        folder, counted = f"{self.path}/query={query}/batch={batch}", Observation()
        if self._is_whole(folder):
            return False
        observed = rows.observe(counted, F.count(F.lit(1)).alias("rows"))
        observed.write.options(**WRITING).mode("overwrite").parquet(folder)
        self.record_rows(folder, counted.get["rows"])
        return True

    def _is_whole(self, folder: str) -> bool:
        """Return whether a folder has all its rows. Record their number if its writer was killed before it did."""
        if not self.files.exists(f"{folder}/{_DONE}"):
            return False
        rows = self._read([folder]).count()
        known = [_recorded(uri)[1] for uri in self.files.glob(f"{folder}/{_ROWS}*")]
        if not known:
            self.record_rows(folder, rows)
        return [rows] == known or not known  # a power failure may have emptied its files

    def record_rows(self, folder: str, rows: int) -> None:
        """Record how many rows a new folder has."""
        self.files.write(f"{folder}/{_ROWS}{rows}", "")

    def lost_rows(self, parts: Iterable[Part] | None = None) -> int | None:
        """Return how many recorded rows are no longer in these folders, by default in all.

        None if none of them has a record: they were written by an earlier version.
        """
        recorded = dict(_recorded(uri) for uri in self.files.glob(f"{self.path}/query=*/batch=*/{_ROWS}*"))
        known = [part.uri for part in (self.parts() if parts is None else parts) if part.uri in recorded]
        if not known:
            return None
        return sum(recorded[uri] for uri in known) - self._read(known).count()

    def lost_batches(self, recorded: Mapping[str, int]) -> int:
        """Return how many batches have lost their folder. ``recorded`` has the number of batches of each query."""
        names = {part.name for part in self.parts()}
        gone = self._replaced()  # after the folders: what a compaction replaces meanwhile is among them
        # Those that compaction has replaced are there as long as its folder is.
        names |= {name for query, replaced in gone.items() if f"query={query}/batch=0" in names for name in replaced}
        batches = dict(recorded)
        for name in [*names, *(name for replaced in gone.values() for name in replaced)]:
            part = _part(f"/{name}/{_DONE}")
            batches[part.query] = max(batches.get(part.query, 0), part.batch + 1)
        return sum(
            f"query={query}/batch={batch}" not in names for query, number in batches.items() for batch in range(number)
        )

    def _read(self, uris: list[str]) -> DataFrame:
        return self._spark.read.schema(BRONZE).options(**READING).parquet(*uris)


def ends_of(table: DataFrame) -> Positions:
    """Return the offset behind the last record of each partition in a table."""
    ends: Positions = {}
    for row in table.groupBy("topic", "partition").agg(F.max("offset").alias("last")).collect():
        ends.setdefault(row["topic"], {})[row["partition"]] = row["last"] + 1
    return ends


def _recorded(uri: str) -> tuple[str, int]:
    """Return a folder and the number of its rows, from the file that records it."""
    folder, _, name = uri.rpartition("/")
    return folder, int(name.removeprefix(_ROWS))


def _part(uri: str) -> Part:
    folder = uri.rpartition("/")[0]
    _, query, batch = folder.rsplit("/", 2)
    return Part(query.removeprefix("query="), int(batch.removeprefix("batch=")), folder)
