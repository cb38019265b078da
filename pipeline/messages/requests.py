"""Planned requests as records of the request topic. Runs on executors."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from pipeline.messages.schemas import HEADERS, OUTGOING
from worker.codec import RUN_HEADER, Request

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pipeline.exactly_once.chunks import Headers, Row

JOB_HEADER = "job"
DEADLINE_HEADER = "x-deadline"

# Sequence 0 with an empty payload would be encoded as no bytes, and the worker treats an empty value as invalid. Every
# protobuf reader decodes this as the same message.
_EXPLICIT_ZERO = b"\x08\x00"


class Run(NamedTuple):
    """The job and the data that requests belong to. ``id`` is the manifest's, or empty from earlier versions."""

    job: str
    id: str


def encode_requests(run: Run, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Convert batches with ``sequence``, ``payload`` and ``deadline`` to batches of ``OUTGOING``."""
    for batch in batches:
        columns = [keys(run.job, batch), values(batch), _headers(run, batch)]
        arrays = [column.cast(field.type) for column, field in zip(columns, OUTGOING, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=OUTGOING)


def request_rows(run: Run, topic: str, batch: pa.RecordBatch) -> Iterator[Row]:
    """Yield the rows to send for a batch of planned requests."""
    deadlines = batch.column("deadline")
    headers: Iterable[Headers] = itertools.repeat(headers_of(run, None))
    if deadlines.null_count < batch.num_rows:
        headers = [headers_of(run, deadline) for deadline in deadlines.to_pylist()]
    numbers = (batch.column(name).to_pylist() for name in ("part", "number"))
    return zip(
        *numbers,
        itertools.repeat(topic),
        keys(run.job, batch).to_pylist(),
        values(batch).to_pylist(),
        headers,
        strict=False,
    )


def keys(job: str, batch: pa.RecordBatch) -> pa.Array:
    """Return the keys of a batch's requests."""
    digits = pc.utf8_lpad(batch.column("sequence").cast(pa.string()), 10, "0")
    return pc.binary_join_element_wise(f"{job}/", digits, "").cast(pa.binary())


def values(batch: pa.RecordBatch) -> pa.Array:
    """Return the ``Request`` of each row."""
    message, encoded = Request(), []
    for sequence, payload in zip(
        batch.column("sequence").to_pylist(), batch.column("payload").to_pylist(), strict=True
    ):
        message.sequence = sequence
        message.payload = payload
        encoded.append(message.SerializeToString() or _EXPLICIT_ZERO)
    return pa.array(encoded, pa.binary())


def headers_of(run: Run, deadline: str | None) -> list[tuple[str, str | bytes | None]]:
    """Return the headers of one request."""
    headers: list[tuple[str, str | bytes | None]] = [(JOB_HEADER, run.job.encode())]
    if run.id:
        headers.append((RUN_HEADER, run.id.encode()))
    return headers if deadline is None else [*headers, (DEADLINE_HEADER, deadline.encode())]


def _headers(run: Run, batch: pa.RecordBatch) -> pa.Array:
    deadlines, count = batch.column("deadline"), batch.num_rows
    if deadlines.null_count < count:
        rows = [headers_of(run, deadline) for deadline in deadlines.to_pylist()]
        return pa.array(rows, pa.map_(pa.string(), pa.binary())).cast(HEADERS)
    # All rows have the same headers, so they are built once and repeated as columns.
    names, contents = zip(*headers_of(run, None), strict=True)
    pairs = [pa.array(names * count, pa.string()), pa.array(contents * count, pa.binary())]
    offsets = pa.array(np.arange(count + 1, dtype=np.int32) * len(names))
    return pa.ListArray.from_arrays(offsets, pa.StructArray.from_arrays(pairs, ["key", "value"])).cast(HEADERS)
