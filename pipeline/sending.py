"""A table of records sent exactly once by Spark's tasks, whatever the records are: see ``transact`` for how."""

from __future__ import annotations

import contextlib
import functools
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F  # noqa: N812 - its customary name

from pipeline.channel import KafkaChannel, fence
from pipeline.ledger import PARTITIONS, Follower, Ledger
from pipeline.progress import watched
from pipeline.transact import Pace, Sent, send_rows
from worker.kafka.cluster import Cluster
from worker.kafka.properties import producer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import DataFrame

    from pipeline.progress import Meter
    from pipeline.ranges import Ranges
    from pipeline.settings import KafkaSettings
    from pipeline.transact import Row

_RESULT = "part int, sent long, skipped long"
_AT_ONCE = 8  # parts fenced at the same time
_DRAWS = 64  # integers per partition among which there is one that falls into it, but for chances of e**-64


@dataclass(frozen=True, slots=True)
class Sending:
    """How rows are sent; goes to the tasks. ``rate`` is rows a second of each task."""

    properties: Mapping[str, Any] = field(repr=False)
    ledger: Ledger
    chunk: int
    cumulative: bool
    rate: float | None = None

    def channel(self, part: int) -> KafkaChannel:
        """The channel of a part."""
        return KafkaChannel(self.properties, self.ledger, part, cumulative=self.cumulative)


def producer_properties(kafka: KafkaSettings) -> dict[str, Any]:
    """Of a transactional producer, secrets included."""
    properties = producer(kafka.link(), "pipeline")
    del properties["message.timeout.ms"]  # the transaction's decides
    return properties


def ledger_of(kafka: KafkaSettings, name: str) -> Ledger:
    """A ledger beside the request topic."""
    return Ledger(kafka.client_properties(), kafka.ledger_topic, name)


def create_ledger(kafka: KafkaSettings) -> None:
    """Create the ledger's topic, if it is not there. BrokerError if that cannot be done."""
    cluster = Cluster(kafka.client_properties(), kafka.connect_timeout)
    cluster.create(kafka.ledger_topic, PARTITIONS, {"cleanup.policy": "compact"})


def settle(sending: Sending, parts: Iterable[int]) -> dict[int, Ranges]:
    """End whatever an earlier run left open in these parts; returns what was sent by part.

    Each task does so for its own part, too; but until then an open transaction would hide the others' records.
    """
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for client in pool.map(lambda part: fence(sending.properties, sending.ledger, part), parts):
            client.close()
    return sending.ledger.read()


def send_table(
    table: DataFrame,
    rows_of: Callable[[pa.RecordBatch], Iterable[Row]],
    sending: Sending,
    parts: Sequence[int],
) -> list[Sent]:
    """Send a table with the columns ``part``, of ``parts``, and ``number``, and what ``rows_of`` makes rows from."""
    ordered = task_each(table, parts).sortWithinPartitions("number")
    sent = ordered.mapInArrow(functools.partial(_send_batches, sending, rows_of), _RESULT)
    return [Sent(row.part, row.sent, row.skipped) for row in sent.collect()]


def task_each(table: DataFrame, parts: Sequence[int]) -> DataFrame:
    """The table with each of ``parts`` in a partition of its own.

    A task that is tried again could else begin with another of its parts than the one it died in, and would wait for
    the transaction that it left open there.
    """
    count = len(parts)
    place = F.pmod(F.hash("number"), F.lit(count))
    numbers = table.sparkSession.range(_DRAWS * count).select(F.col("id").cast("int").alias("number"))
    # Spark puts a row where the hash of an integer says. Any integer does that falls into the partition.
    found = {row.place: row.number for row in numbers.select("number", place.alias("place")).collect()}
    if len(found) < count:
        message = f"no integer below {_DRAWS * count} falls into some of {count} partitions"
        raise RuntimeError(message)
    falls: list[int | None] = [None] * (max(parts) + 1)
    for at, part in enumerate(sorted(parts)):
        falls[part] = found[at]
    return table.repartition(count, F.get(F.array([F.lit(one).cast("int") for one in falls]), F.col("part")))


def _send_batches(
    sending: Sending,
    rows_of: Callable[[pa.RecordBatch], Iterable[Row]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    rows = (row for batch in batches for row in rows_of(batch))
    for one in send_rows(rows, sending.chunk, sending.channel, Pace(sending.rate)):
        yield pa.RecordBatch.from_arrays(
            [pa.array([one.part], pa.int32()), pa.array([one.sent], pa.int64()), pa.array([one.skipped], pa.int64())],
            ["part", "sent", "skipped"],
        )


@contextlib.contextmanager
def followed(shown: Meter, ledger: Ledger, total: int, before: int = 0) -> Iterator[None]:
    """Shows how much is committed while it is being sent. ``before`` is what the ledger had and does not count."""
    follower = Follower(ledger)
    try:
        with watched(shown, lambda: follower.look() - before, total):
            yield
        shown.show(follower.look() - before, total)
    finally:
        follower.close()
