"""``pipeline collect``: copy the records of the ack and dead-letter topics into the bronze table, exactly once."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, NamedTuple

from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.audit.attribution import of_run
from pipeline.errors import BrokerError, JobError, WorkerError, format_error, is_unreachable
from pipeline.kafka import data_loss
from pipeline.kafka.connector import connection
from pipeline.kafka.records import decode_records
from pipeline.kafka.topics import Topics
from pipeline.lake.bronze import Bronze, before, is_recorded
from pipeline.lake.checkpoint import Checkpoint
from pipeline.progress import QueryProgress, meter

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

    from pipeline.kafka.topics import Topic
    from pipeline.lake.checkpoint import Positions
    from pipeline.settings import CollectSettings

_LOOK_EVERY = 0.1  # seconds between two checks whether to stop
_TASK_RECORDS = 10_000  # for fewer records per task, starting another Python worker takes longer than it saves
_LOSS = re.compile(r"some data may have been (?:lost|missed)|are gone|has been deleted|OffsetOutOfRange", re.IGNORECASE)


class Collected(NamedTuple):
    """The result of ``collect``. ``complete`` means that it reached the end of the available records.

    ``rows`` and ``undecodable`` count the records that this call has stored.
    """

    rows: int
    undecodable: int
    batches: int
    query: str | None
    complete: bool


def collect(
    spark: SparkSession,
    settings: CollectSettings,
    stop: Callable[[], bool] = lambda: False,
    answered: Callable[[int | None], None] | None = None,
    run: str = "",
) -> Collected:
    """Collect the available records, or follow the topics until ``stop()`` is true.

    ``answered`` is called with None before the start, when the answers in the table can be counted: what other jobs
    store from then on, the stream reads. Then it is called on Spark's thread with the number of answers to the job's
    ``run`` in each batch, or with None if another job, or a call that was killed, has already stored some of them.

    Raise JobError if records were deleted before they were collected, or a topic was recreated.
    """
    collector = _Collector(spark, settings, answered, run)
    collector.prepare()
    if answered is not None:
        answered(None)
    complete = not stop() and collector.collect(stop)
    return Collected(collector.rows, collector.undecodable, collector.batches, collector.query, complete)


class _Collector:
    def __init__(
        self, spark: SparkSession, settings: CollectSettings, answered: Callable[[int | None], None] | None, run: str
    ) -> None:
        self._answered = answered
        self._run_id = run
        self._spark = spark
        self._settings = settings
        self._names = [settings.kafka.ack_topic, settings.kafka.dead_letter_topic]
        self._topics = Topics(settings.kafka)
        self._bronze = Bronze(spark, settings)
        self._checkpoint = Checkpoint(self._bronze.files, settings.checkpoint)
        self._ids: dict[str, str] = {}  # of the existing topics
        self._lost: list[str] = []
        self._recorded = False
        self._ends: Positions = {}
        self._stored = 0  # batches, of this call or earlier ones
        self._starts: Positions | None = None
        self.query = self._checkpoint.query_id()
        self.rows = self.undecodable = self.batches = 0

    # -- before the start

    def prepare(self) -> None:
        """Decide where to begin. Check that the topics still hold everything from there on."""
        topics = self._find()
        self._ids = {name: topic.id for name, topic in topics.items()}
        queries = self._bronze.queries()
        known = {name: id_ for query in queries.values() for name, id_ in query["topics"].items()}
        if recreated := data_loss.recreated_topics(topics, known):
            # Its offsets begin again at 0, and records are identified by offset.
            raise JobError(f"{'; '.join(recreated)}: collect it into another lake")
        positions = self._checkpoint.positions()
        stale = self._checkpoint.batches() < (queries.get(self.query or "", {}).get("batches") or 0)
        if stale or (positions is not None and self._is_behind(topics, positions)):
            # It is from a backup, and would give numbers of stored batches to other records. Or other jobs have
            # collected the records that it has not read, and Kafka has deleted them since.
            self._bronze.files.delete(self._checkpoint.path)
            positions = self.query = None
        if positions is None:
            positions = self._first_positions(topics)
            # Offsets instead of "earliest", so that a later deletion is an error of the stream.
            self._starts = _starts(topics, positions)
        lost = data_loss.find_data_loss(topics, positions)
        if lost and not self._settings.allow_data_loss:
            raise JobError(f"{'; '.join(lost)} (--allow-data-loss continues without them, and the audit reports it)")
        self._tidy()
        self._lost = [*queries.get(self.query or "", {}).get("lost", []), *lost]
        if self.query in queries:
            self._record()

    def _is_behind(self, topics: dict[str, Topic], positions: Positions) -> bool:
        """Return whether deleted records that this checkpoint has not read are all in the table."""
        covered = self._bronze.covered()
        furthest = {
            name: {p: max(offset, covered.get(name, {}).get(p, 0)) for p, offset in offsets.items()}
            for name, offsets in positions.items()
        }
        return bool(data_loss.find_data_loss(topics, positions)) and not data_loss.find_data_loss(topics, furthest)

    def _first_positions(self, topics: dict[str, Topic]) -> Positions:
        """Return where a new checkpoint begins: at the end of the table, or where collecting began if it is empty."""
        begins = self._bronze.begins()
        for name, topic in topics.items():
            # Recorded before the stream starts: a later deletion is then detected, even if this process dies now.
            known = begins.setdefault(name, {partition: span.low for partition, span in topic.spans.items()})
            begins[name] = {**dict.fromkeys(topic.spans, 0), **known}  # a partition that was added began at 0
        self._bronze.record_begins(begins)
        ends = self._bronze.ends()
        first = {name: {**offsets, **ends.get(name, {})} for name, offsets in begins.items() if name in topics}
        return {**ends, **first}

    def _find(self) -> dict[str, Topic]:
        found = {name: topic for name in self._names if (topic := self._topics.find(name)) is not None}
        if self._settings.kafka.ack_topic not in found:
            raise BrokerError(f"there is no topic {self._settings.kafka.ack_topic!r}: create it, or correct its name")
        return found

    def _tidy(self) -> None:
        """Remove what killed writers left under deleted checkpoints, which no process will write again."""
        if self._bronze.parquet is None:
            return
        left = self._bronze.parquet.unfinished()
        queries = self._bronze.queries()  # after the folders: a query is recorded before its first batch
        for part in left:
            facts = queries.get(part.query, {})
            checkpoint = Checkpoint(self._bronze.files, facts.get("checkpoint", self._checkpoint.path))
            if checkpoint.query_id() != part.query:
                if facts and is_recorded(facts, part.batch):
                    self._bronze.record_query(part.query, {**facts, "ends": {}})  # it has lost some of what it stored
                self._bronze.files.delete(part.uri)

    # -- the stream

    def collect(self, stop: Callable[[], bool]) -> bool:
        """Run the stream to its end, or until it must stop. Return whether it reached its end."""
        with meter(self._settings.progress, f"collect {self._settings.job}") as shown:
            listener = QueryProgress(shown)
            self._spark.streams.addListener(listener)
            try:
                return self._run(stop)
            finally:
                self._spark.streams.removeListener(listener)

    def _run(self, stop: Callable[[], bool]) -> bool:
        settings = self._settings
        every = {"availableNow": True} if settings.available_now else {"processingTime": f"{settings.trigger} seconds"}
        query = (
            self._stream()
            .writeStream.queryName(f"collect {settings.job}")
            .foreachBatch(self._write)
            .option("checkpointLocation", settings.checkpoint)
            .trigger(**every)
            .start()
        )
        try:
            while not stop():
                if query.awaitTermination(_LOOK_EVERY):  # type: ignore[arg-type]  # accepts fractions
                    return True
            query.stop()  # in the middle of a batch if necessary: the batch will be written again in its place
        except PySparkException as error:
            if stop():  # a signal to this process may have reached the JVM, too
                return False
            raise _explained(error) from error
        return False

    def _stream(self) -> DataFrame:
        settings = self._settings
        options = {
            **connection(settings.kafka),
            # By pattern, because the dead-letter topic may be created later. Spark finds it inside other names, too.
            "subscribePattern": f"^(?:{'|'.join(re.escape(name) for name in self._names)})$",
            "startingOffsets": "earliest" if self._starts is None else json.dumps(self._starts),
            "maxOffsetsPerTrigger": str(settings.max_offsets),
            "failOnDataLoss": str(not settings.allow_data_loss).lower(),
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
        }
        return self._spark.readStream.format("kafka").options(**options).load()

    def _write(self, records: DataFrame, batch: int) -> None:
        """Write a batch. Spark calls it for each batch on its thread, and again for one that was not finished."""
        context = records.sparkSession.sparkContext
        if self.query is None:
            self.query = str(context.getLocalProperty("sql.streaming.queryId"))
        self._check_topics()
        # One file per task: Kafka may have many partitions with few records in each batch. Before decoding, because
        # Spark prepares a Python worker again for each partition that it reads.
        ends = self._checkpoint.positions() or {}
        tasks = min(context.defaultParallelism, 1 + self._records(ends) // _TASK_RECORDS)
        rows = decode_records(records.coalesce(tasks), self._settings.kafka.dead_letter_topic)
        read, stored = Observation(), Observation()
        # Jobs with the same topics share the table. Records that another job has stored are not stored again.
        new = rows.observe(read, F.count(F.lit(1)).alias("rows")).where(~before(self._bronze.covered(self.query)))
        observed = new.observe(
            stored,
            F.count(F.lit(1)).alias("rows"),
            F.count_if(F.col("decode_error").isNotNull()).alias("undecodable"),
            F.count_if(of_run(self._settings.job, self._run_id)).alias("answered"),
        )
        written = self._bronze.write(observed, self.query, batch)
        self._ends = ends
        self._stored = batch + 1
        self._record()
        self.batches += 1
        answered = None
        if written:
            self.rows += stored.get["rows"]
            self.undecodable += stored.get["undecodable"]
            answered = stored.get["answered"] if stored.get["rows"] == read.get["rows"] else None
        if self._answered is not None:
            self._answered(answered)

    def _records(self, ends: Positions) -> int:
        """Return how many records a batch with these ends has at most. Transaction markers count."""
        begins = self._ends or self._starts or self._checkpoint.committed()
        return sum(
            end - begins.get(topic, {}).get(partition, 0)
            for topic, offsets in ends.items()
            for partition, end in offsets.items()
        )

    def _check_topics(self) -> None:
        """Raise JobError if a topic was recreated. Spark misses that once the new topic is longer than the old one."""
        found = {name: identity for name in self._names if (identity := self._topics.identity(name)) is not None}
        for name, identity in found.items():
            if self._ids.get(name, identity) != identity:
                raise JobError(f"topic {name} was deleted and recreated while it was being collected")
        if not self._recorded or found.keys() - self._ids.keys():
            self._ids |= found
            self._record()

    def _record(self) -> None:
        """Record the facts of this query for the audit and for later checkpoints."""
        assert self.query is not None
        known = self._bronze.queries().get(self.query, {})
        self._bronze.record_query(
            self.query,
            {
                "begun": known.get("begun", dt.datetime.now(dt.UTC).isoformat(timespec="seconds")),
                "checkpoint": self._checkpoint.path,
                "topics": self._ids,
                "allow_data_loss": self._settings.allow_data_loss or known.get("allow_data_loss", False),
                "lost": self._lost,
                "ends": self._ends or known.get("ends", {}),
                "batches": self._stored or known.get("batches"),
            },
        )
        self._recorded = True


def _starts(topics: dict[str, Topic], positions: Positions) -> Positions:
    """Return the positions for all existing partitions, none before the partition's first record."""
    return {
        name: {p: max(span.low, positions.get(name, {}).get(p, span.low)) for p, span in topic.spans.items()}
        for name, topic in topics.items()
    }


def _explained(error: PySparkException) -> WorkerError:
    """Return an error with the line of the stream's error that matters: BrokerError if no broker has answered."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    known = next((line for line in lines if _LOSS.search(line)), None) or next(
        (line for line in lines if "recreated" in line), None
    )
    if known is None and is_unreachable(error):
        return BrokerError(f"collecting has stopped: {' '.join(format_error(error) or lines)}")
    telling = known or (lines[0] if lines else type(error).__name__)
    return JobError(f"collecting has stopped: {telling[:500]}")
