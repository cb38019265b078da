"""The bronze table: what a batch of the stream is written to, and what of it readers see.

With Parquet a batch is a folder, ``life=<checkpoint's life>/batch=<number>``, overwritten when the batch is repeated. A
life is the id that Spark gives to a new checkpoint, so two checkpoints never write to the same folder. Compaction adds
lives of its own, each with a list of the folders it replaces. With Delta a batch is a transaction of that name.

``_lives/<life>.json`` says of each life where its checkpoint is and which topics it reads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.files import Files
from pipeline.schemas import BRONZE
from pipeline.table_io import table_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TypeVar

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.settings import Common

    R = TypeVar("R")

COMPACT = "compact-"  # begins the name of a life that compaction made
REPLACES = "_replaces.json"
PLACE = ["topic", "partition", "offset"]  # what a record is known by
_DONE = "_SUCCESS"
_GONE = ("FILE_NOT_EXIST", "FileNotFoundException", "PATH_NOT_FOUND", "does not exist")
_TRIES = 5


class Part(NamedTuple):
    """A folder of the Parquet table, complete."""

    life: str
    batch: int
    uri: str

    @property
    def name(self) -> str:
        """Where it is within the table."""
        return f"life={self.life}/batch={self.batch}"


class Bronze:
    """The bronze table of a job."""

    def __init__(self, spark: SparkSession, common: Common) -> None:
        self._spark = spark
        self._format = common.table_format
        self.path = common.bronze
        self.files = Files(spark)

    # -- what is there

    def parts(self) -> list[Part]:
        """The folders that make up the table."""
        while True:
            gone = self._replaced()
            found = [_part(uri) for uri in self.files.glob(f"{self.path}/life=*/batch=*/{_DONE}")]
            compacted = {part.life for part in found if part.life.startswith(COMPACT)}
            # Else one was published between the two looks, and the table would be seen twice, or in part.
            if compacted <= gone.keys():
                names = set().union(*gone.values())
                return sorted(part for part in found if part.name not in names)

    def replaced(self) -> list[str]:
        """The folders that compaction has replaced and not removed yet."""
        names = set().union(*self._replaced().values())
        folders = [_part(f"{uri}/{_DONE}") for uri in self.files.glob(f"{self.path}/life=*/batch=*")]
        return [part.uri for part in folders if part.name in names]

    def _replaced(self) -> dict[str, list[str]]:
        """The names of the folders that each life of compaction replaces."""
        lists = [self.files.read_json(uri) for uri in self.files.glob(f"{self.path}/life={COMPACT}*/{REPLACES}")]
        return {entry["life"]: entry["replaces"] for entry in lists}

    def unfinished(self) -> list[tuple[str, str]]:
        """Folders that a killed writer has left, with their lives. No reader of ours sees them."""
        complete = set(self.files.glob(f"{self.path}/life=*/batch=*/{_DONE}"))
        folders = [_part(f"{uri}/{_DONE}") for uri in self.files.glob(f"{self.path}/life=*/batch=*")]
        return [(part.life, part.uri) for part in folders if f"{part.uri}/{_DONE}" not in complete]

    def lives(self) -> dict[str, dict[str, Any]]:
        """What is noted of each life of a checkpoint."""
        notes = self.files.entries(f"{self.path}/_lives")
        return {entry.name.removesuffix(".json"): self.files.read_json(entry.uri) for entry in notes}

    def note_life(self, life: str, note: dict[str, Any]) -> None:
        """Keep what is to be known of a life."""
        self.files.write_json(f"{self.path}/_lives/{life}.json", note)

    # -- reading

    def exists(self) -> bool:
        """Whether anything was collected."""
        if self._format == "delta":
            return self.files.exists(f"{self.path}/_delta_log")
        return bool(self.parts())

    def stored(self) -> DataFrame:
        """Every row there is, also of a record that two checkpoints have collected. Columns as ``BRONZE``."""
        if not self.exists():
            return table_of(self._spark, [], BRONZE)
        if self._format == "delta":
            table = self._spark.read.format("delta").load(self.path)
        else:
            table = self._spark.read.schema(BRONZE).parquet(*(part.uri for part in self.parts()))
        return table.select(*BRONZE.fieldNames())

    def read(self) -> DataFrame:
        """One row for each record."""
        table = self.stored()
        # One checkpoint never stores a record twice, and the next one goes on where the table ends. Whether something
        # else has happened, such as two of them side by side, is cheaper to find out than to put right.
        if len(self.lives()) > 1 and has_doubles(table):
            return table.dropDuplicates(PLACE)
        return table

    def ends(self) -> dict[str, dict[int, int]]:
        """Behind which offset the table ends, by topic and partition."""
        rows = self.stored().groupBy("topic", "partition").agg(F.max("offset").alias("last")).collect()
        ends: dict[str, dict[int, int]] = {}
        for row in rows:
            ends.setdefault(row["topic"], {})[row["partition"]] = row["last"] + 1
        return ends

    # -- writing

    def write(self, rows: DataFrame, life: str, batch: int) -> None:
        """Write a batch, in place of an earlier attempt at the same."""
        if self._format == "delta":
            writer = rows.write.format("delta").mode("append")
            writer.option("txnAppId", life).option("txnVersion", batch).save(self.path)
        else:
            rows.write.mode("overwrite").parquet(f"{self.path}/life={life}/batch={batch}")


def _part(uri: str) -> Part:
    folder = uri.rpartition("/")[0]
    _, life, batch = folder.rsplit("/", 2)
    return Part(life.removeprefix("life="), int(batch.removeprefix("batch=")), folder)


def has_doubles(table: DataFrame) -> bool:
    """Whether any record is there twice. Exact: each bucket's rows against its different offsets."""
    counted = table.groupBy("topic", "partition", F.bitmap_bucket_number("offset").alias("bucket")).agg(
        F.count(F.lit(1)).alias("rows"),
        F.bitmap_count(F.bitmap_construct_agg(F.bitmap_bit_position("offset"))).alias("offsets"),
    )
    return not counted.where(F.col("rows") != F.col("offsets")).isEmpty()


def undisturbed(read: Callable[[], R]) -> R:
    """What ``read`` returns. It is called again if files it had listed were replaced under its eyes.

    That happens when compaction, or the repetition of a killed batch, comes in between. Spark then ends in an error,
    never in a smaller table.
    """
    for _ in range(_TRIES - 1):
        try:
            return read()
        except Exception as error:  # Spark's own kinds, and those of the bridge to Java
            if not any(sign in str(error) for sign in _GONE):
                raise
    return read()
