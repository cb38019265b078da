"""Exactly-once sending of a table of records by Spark's tasks, with ``pipeline.exactly_once``."""

from __future__ import annotations

import contextlib
import functools
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.errors import JobError
from pipeline.exactly_once.channel import fence
from pipeline.exactly_once.chunks import Sent
from pipeline.exactly_once.progress_log import PARTITIONS, Follower, ProgressLog
from pipeline.exactly_once.sender import Sender, send_batches
from pipeline.exactly_once.turns import take_turn
from pipeline.kafka.tls import with_files_inlined
from pipeline.kafka.topics import Topics
from pipeline.progress import meter, watched
from worker.kafka.cluster import Cluster
from worker.kafka.properties import producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from pipeline.exactly_once.chunks import Row
    from pipeline.exactly_once.ranges import Ranges
    from pipeline.progress import Meter
    from pipeline.settings import KafkaSettings, ReplaySettings, SubmitSettings

_RESULT = "part int, sent long, skipped long"
_COMPACTED = "compact"
_AT_ONCE = 8  # parts that are fenced at the same time
_DRAWS = 64  # integers per partition: none of them falls into it with a chance of e**-64


def producer_properties(kafka: KafkaSettings) -> dict[str, Any]:
    """Return the properties of a transactional producer, secrets included."""
    properties = with_files_inlined(producer(kafka.link(), "pipeline"))
    del properties["message.timeout.ms"]  # the time-out of the transaction decides
    return properties


def progress_log_of(kafka: KafkaSettings, name: str) -> ProgressLog:
    """Return the progress log beside the request topic."""
    return ProgressLog(with_files_inlined(kafka.client_properties()), kafka.progress_topic, name)


def check_speculation(spark: SparkSession) -> None:
    """Raise JobError if Spark may run a task twice at once: the two would fence each other until both fail."""
    if str(spark.conf.get("spark.speculation", "false")).lower() == "true":
        raise JobError("spark.speculation is on, and tasks that send cannot run twice: start Spark without it")


def create_progress_log(kafka: KafkaSettings) -> None:
    """Create the topic of the progress log if it does not exist. Raise JobError if its records expire."""
    cluster = Cluster(kafka.client_properties(), kafka.connect_timeout)
    cluster.create(kafka.progress_topic, PARTITIONS, {"cleanup.policy": _COMPACTED})
    _check_kept(Topics(kafka), kafka.progress_topic)


def _check_kept(topics: Topics, name: str) -> None:
    """Raise JobError if records of the progress log expire: what they record would be sent again."""
    policy = topics.cleanup_policy(name)
    if policy not in {_COMPACTED, None}:  # None: it may not be read
        raise JobError(f"topic {name} has cleanup.policy={policy}, so it forgets what was sent: set it to compact")


def settle(sender: Sender, parts: Iterable[int]) -> dict[int, Ranges]:
    """End the transactions that an earlier run left open in these parts. Return what was sent, by part.

    Each task also does so for its part, but until then an open transaction would hide the records of other parts.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for client in pool.map(lambda part: fence(sender.properties, sender.progress_log, part), parts):
            client.close()
    return sender.progress_log.read()


class Transfer:
    """Records that a job sends exactly once, under a name in the progress log.

    If ``cumulative``, one record of the log holds all that a part has sent; otherwise, each chunk has a record.
    """

    def __init__(self, settings: SubmitSettings | ReplaySettings, name: str, *, cumulative: bool) -> None:
        self._settings = settings
        self._cumulative = cumulative
        self._turn = ""
        self.log = progress_log_of(settings.kafka, name)

    def known(self) -> dict[int, Ranges]:
        """Return what was sent, by part, as far as it is visible at once. Empty without a progress log."""
        topics = Topics(self._settings.kafka)
        if topics.find(self.log.topic) is None:
            return {}
        _check_kept(topics, self.log.topic)
        return self.log.peek()

    def begin(self, parts: Iterable[int]) -> dict[int, Ranges]:
        """End the transactions that an earlier call left open in these parts. Return what was sent, by part."""
        create_progress_log(self._settings.kafka)
        self._turn = take_turn(self.log)
        return settle(self._sender(None), parts)

    def send(
        self,
        table: DataFrame,
        rows_of: Callable[[pa.RecordBatch], Iterable[Row]],
        parts: Sequence[int],
        *,
        title: str,
        total: int,
        before: int = 0,
        rate: float | None = None,
    ) -> int:
        """Call ``send_table`` with a progress bar of ``total``. Return how many records the progress log has then.

        ``before`` of them were in it already and do not count in the bar. ``rate`` is in records per second and task.
        """
        settings = self._settings
        with (
            meter(settings.progress, f"{title} {settings.job}", total) as shown,
            followed(shown, self.log, total, before),
        ):
            send_table(table, rows_of, self._sender(rate), parts)
        return sum(map(len, self.log.read().values()))

    def _sender(self, rate: float | None) -> Sender:
        settings = self._settings
        properties = producer_properties(settings.kafka)
        return Sender(properties, self.log, settings.chunk, cumulative=self._cumulative, rate=rate, turn=self._turn)


def send_table(
    table: DataFrame,
    rows_of: Callable[[pa.RecordBatch], Iterable[Row]],
    sender: Sender,
    parts: Sequence[int],
) -> list[Sent]:
    """Send a table with the columns ``part`` (of ``parts``), ``number`` and those that ``rows_of`` reads."""
    ordered = task_each(table, parts).sortWithinPartitions("number")
    sent = ordered.mapInArrow(functools.partial(send_batches, sender, rows_of), _RESULT)
    return [Sent(row.part, row.sent, row.skipped) for row in sent.collect()]


def task_each(table: DataFrame, parts: Sequence[int]) -> DataFrame:
    """Return the table with each of ``parts`` in a separate partition.

    Otherwise a retried task could begin with another part than the one in which it died. It would then wait for the
    transaction that it left open there.
    """
    count = len(parts)
    if count == 1:
        return table.repartition(1)
    place = F.pmod(F.hash("number"), F.lit(count))
    numbers = table.sparkSession.range(_DRAWS * count).select(F.col("id").cast("int").alias("number"))
    # Spark places a row by the hash of an integer. Any integer will do whose hash falls into the partition.
    found = {row.place: row.number for row in numbers.select("number", place.alias("place")).collect()}
    if len(found) < count:
        message = f"some of the {count} partitions get no integer below {_DRAWS * count}"
        raise RuntimeError(message)
    falls: list[int | None] = [None] * (max(parts) + 1)
    for at, part in enumerate(sorted(parts)):
        falls[part] = found[at]
    return table.repartition(count, F.get(F.array([F.lit(one).cast("int") for one in falls]), F.col("part")))


@contextlib.contextmanager
def followed(shown: Meter, progress_log: ProgressLog, total: int, before: int = 0) -> Iterator[None]:
    """Show how much is committed during the sending. ``before`` was in the log already and does not count."""
    follower = Follower(progress_log)
    try:
        with watched(shown, lambda: follower.look() - before, total):
            yield
        shown.show(follower.look() - before, total)
    finally:
        follower.close()
