"""Exactly-once sending of the rows of one task. Runs on executors."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from pipeline.exactly_once.channel import KafkaChannel
from pipeline.exactly_once.chunks import send_rows
from pipeline.exactly_once.throttle import Throttle
from pipeline.exactly_once.turns import check_turn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from pipeline.exactly_once.chunks import Row
    from pipeline.exactly_once.progress_log import ProgressLog


@dataclass(frozen=True, slots=True)
class Sender:
    """How to send rows; Spark ships it to the tasks. ``rate`` is in rows per second and task."""

    properties: Mapping[str, Any] = field(repr=False)
    progress_log: ProgressLog
    chunk: int
    cumulative: bool
    rate: float | None = None
    turn: str = ""  # empty: any call may send

    def channel(self, part: int) -> KafkaChannel:
        """Return the channel of a part. Raise JobError if a later call sends the same rows."""
        if self.turn:
            check_turn(self.progress_log, self.turn)
        return KafkaChannel(self.properties, self.progress_log, part, cumulative=self.cumulative)


def send_batches(
    sender: Sender,
    rows_of: Callable[[pa.RecordBatch], Iterable[Row]],
    batches: Iterable[pa.RecordBatch],
) -> Iterator[pa.RecordBatch]:
    """Send the rows that ``rows_of`` makes of each batch. Yield ``part``, ``sent`` and ``skipped`` for each part."""
    rows = (row for batch in batches for row in rows_of(batch))
    for one in send_rows(rows, sender.chunk, sender.channel, Throttle(sender.rate)):
        yield pa.RecordBatch.from_arrays(
            [pa.array([one.part], pa.int32()), pa.array([one.sent], pa.int64()), pa.array([one.skipped], pa.int64())],
            ["part", "sent", "skipped"],
        )
