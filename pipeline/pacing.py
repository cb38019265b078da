"""Records held back to a rate, on their way to Spark's own sink."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from pipeline.transact import Pace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import pyarrow as pa
    from pyspark.sql import DataFrame


def paced(records: DataFrame, rate: float | None) -> DataFrame:
    """The same records, at most ``rate`` a second from each task; None: as they are."""
    return records if rate is None else records.mapInArrow(functools.partial(_pace, rate), records.schema)


def _pace(rate: float, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    pace = Pace(rate)
    for batch in batches:
        step = pace.chunk(batch.num_rows or 1)
        for start in range(0, batch.num_rows, step):
            piece = batch.slice(start, step)
            pace.wait(piece.num_rows)
            yield piece
