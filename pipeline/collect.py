"""``pipeline collect``: the records of the ack and dead-letter topics into the bronze table, each exactly once."""

from __future__ import annotations

import datetime as dt
import json
import re
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException
from pyspark.sql import Observation
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline import codec, losses
from pipeline.bronze import Bronze
from pipeline.checkpoint import Checkpoint
from pipeline.errors import BrokerError, JobError
from pipeline.kafka_io import connection
from pipeline.progress import QueryProgress, meter, report
from pipeline.session import build_session
from pipeline.topics import Topics
from worker.cli.console import Stop, stoppable

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.checkpoint import Positions
    from pipeline.settings import CollectSettings
    from pipeline.topics import Topic

_EARLIEST = -2  # as Spark writes it among offsets
_LOOK_EVERY = 1  # seconds between two looks at whether to stop
_LOSS = re.compile(r"some data may have been (?:lost|missed)|are gone|has been deleted|OffsetOutOfRange", re.IGNORECASE)
_INTERRUPTED = 143


def run(settings: CollectSettings) -> int:
    """Collect what is there, or follow until SIGTERM. The exit code: 143 if what is there was not collected to its end.

    JobError if records were deleted before they were collected, or a topic was made anew.
    """
    spark = build_session(f"collect {settings.job}", master=settings.master, table_format=settings.table_format)
    return collect(spark, settings)


def collect(spark: SparkSession, settings: CollectSettings) -> int:
    """The same in a session that is there."""
    collector = _Collector(spark, settings)
    collector.prepare()
    with stoppable() as stop:
        complete = collector.collect(stop)
    report(
        "collected",
        job=settings.job,
        rows=collector.rows,
        undecodable=collector.undecodable,
        batches=collector.batches,
        query=collector.life,
        complete=complete,
    )
    return 0 if complete or settings.follow else _INTERRUPTED


class _Collector:
    def __init__(self, spark: SparkSession, settings: CollectSettings) -> None:
        self._spark = spark
        self._settings = settings
        self._names = [settings.kafka.ack_topic, settings.kafka.dead_letter_topic]
        self._topics = Topics(settings.kafka)
        self._bronze = Bronze(spark, settings)
        self._checkpoint = Checkpoint(self._bronze.files, settings.checkpoint)
        self._ids: dict[str, str] = {}  # of the topics that are there
        self._lost: list[str] = []
        self._noted = False
        self._starts: Positions | None = None
        self.life = self._checkpoint.life()
        self.rows = self.undecodable = self.batches = 0

    # -- before the start

    def prepare(self) -> None:
        """Decide where to begin, and make sure that everything from there on is there."""
        topics = self._find()
        self._ids = {name: topic.id for name, topic in topics.items()}
        lives = self._bronze.lives()
        known = {name: id_ for note in lives.values() for name, id_ in note["topics"].items()}
        if strangers := losses.strangers(topics, known):
            # Its offsets begin again, and are what records are known by.
            raise JobError(f"{'; '.join(strangers)}: collect it into another lake, or under another job")
        positions = self._checkpoint.positions()
        if positions is None:
            positions = self._bronze.ends()
            self._starts = _starts(topics, positions)
        lost = losses.losses(topics, positions)
        if lost and not self._settings.allow_data_loss:
            raise JobError(f"{'; '.join(lost)} (--allow-data-loss goes on without them, and the audit will say so)")
        self._tidy(lives)
        self._lost = [*lives.get(self.life or "", {}).get("lost", []), *lost]
        if self.life in lives:
            self._note()

    def _find(self) -> dict[str, Topic]:
        found = {name: topic for name in self._names if (topic := self._topics.find(name)) is not None}
        if self._settings.kafka.ack_topic not in found:
            raise BrokerError(f"there is no topic {self._settings.kafka.ack_topic!r}: create it, or correct its name")
        return found

    def _tidy(self, lives: dict[str, dict[str, Any]]) -> None:
        """Remove what killed writers have left under checkpoints that are no more: nobody will write it again."""
        for life, folder in self._bronze.unfinished():
            checkpoint = Checkpoint(self._bronze.files, lives.get(life, {}).get("checkpoint", self._checkpoint.path))
            if checkpoint.life() != life:
                self._bronze.files.delete(folder)

    # -- the stream

    def collect(self, stop: Stop) -> bool:
        """Run the stream to its end, or until it is to stop. Whether it came to its end."""
        with meter(self._settings.progress, f"collect {self._settings.job}") as shown:
            listener = QueryProgress(shown)
            self._spark.streams.addListener(listener)
            try:
                return self._run(stop)
            finally:
                self._spark.streams.removeListener(listener)

    def _run(self, stop: Stop) -> bool:
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
            while not stop:
                if query.awaitTermination(_LOOK_EVERY):
                    return True
            query.stop()  # in mid-batch if need be: the batch will be written again, in its place
        except PySparkException as error:
            if stop:  # whoever told this process to stop may have told the JVM too
                return False
            raise _explained(error) from error
        return False

    def _stream(self) -> DataFrame:
        settings = self._settings
        options = {
            **connection(settings.kafka),
            # By pattern, since the dead-letter topic may come into being later.
            "subscribePattern": "|".join(re.escape(name) for name in self._names),
            "startingOffsets": "earliest" if self._starts is None else json.dumps(self._starts),
            "maxOffsetsPerTrigger": str(settings.max_offsets),
            "failOnDataLoss": str(not settings.allow_data_loss).lower(),
            "kafka.isolation.level": "read_committed",
            "includeHeaders": "true",
        }
        records = self._spark.readStream.format("kafka").options(**options).load()
        return codec.decode_records(records, settings.kafka.dead_letter_topic)

    def _write(self, rows: DataFrame, batch: int) -> None:
        """Called by Spark for each batch, on a thread of its own; again for one that was not finished."""
        if self.life is None:
            self.life = str(rows.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId"))
        self._check_topics()
        counted = Observation()
        undecodable = F.count_if(F.col("decode_error").isNotNull())
        observed = rows.observe(counted, F.count(F.lit(1)).alias("rows"), undecodable.alias("undecodable"))
        self._bronze.write(observed, self.life, batch)
        self.rows += counted.get["rows"]
        self.undecodable += counted.get["undecodable"]
        self.batches += 1

    def _check_topics(self) -> None:
        """Spark does not see that a topic was made anew if the new one has grown past the old one's offsets."""
        found = {name: identity for name in self._names if (identity := self._topics.identity(name)) is not None}
        for name, identity in found.items():
            if self._ids.get(name, identity) != identity:
                raise JobError(f"topic {name} was deleted and made anew while it was being collected")
        if not self._noted or found.keys() - self._ids.keys():
            self._ids |= found
            self._note()

    def _note(self) -> None:
        """What the audit and later checkpoints need to know of this one."""
        assert self.life is not None
        before = self._bronze.lives().get(self.life, {})
        self._bronze.note_life(
            self.life,
            {
                "begun": before.get("begun", dt.datetime.now(dt.UTC).isoformat(timespec="seconds")),
                "checkpoint": self._checkpoint.path,
                "topics": self._ids,
                "allow_data_loss": self._settings.allow_data_loss or before.get("allow_data_loss", False),
                "lost": self._lost,
            },
        )
        self._noted = True


def _starts(topics: dict[str, Topic], ends: Positions) -> Positions:
    """Where a new checkpoint begins: behind what the table has, and at the beginning where it has nothing."""
    return {
        name: {partition: ends.get(name, {}).get(partition, _EARLIEST) for partition in topic.spans}
        for name, topic in topics.items()
    }


def _explained(error: PySparkException) -> JobError:
    """The line that matters in an error of the stream."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = next((line for line in lines if _LOSS.search(line)), None) or next(
        (line for line in lines if "made anew" in line), lines[0] if lines else type(error).__name__
    )
    return JobError(f"collecting has stopped: {telling[:500]}")
