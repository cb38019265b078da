"""Records as the codec reads and writes them, and strategies for their parts."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st
from pyspark.sql.pandas.types import to_arrow_schema

from pipeline.lake.schemas import BRONZE, OUTGOING, RECORD
from pipeline.messages import answers, requests
from pipeline.messages.keys import LARGEST
from pipeline.messages.requests import Run

NOON = dt.datetime(2026, 1, 2, 12, 0, tzinfo=dt.UTC)
texts = st.text()  # without halves of surrogate pairs, which UTF-8 does not have
sequences = st.integers(0, LARGEST)
int32 = st.integers(-(2**31), LARGEST)


def record(value: bytes | None, key: bytes | None = b"j/0000000007", **other: Any) -> dict[str, Any]:
    row = {"key": key, "value": value, "topic": "acks", "partition": 1, "offset": 5, "timestamp": NOON, "headers": None}
    return {**row, **other}


def decoded(*rows: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the bronze rows of these records."""
    batch = pa.RecordBatch.from_pylist(list(rows), to_arrow_schema(RECORD))
    (out,) = answers.decode_batches("dead_letters", [batch])
    assert out.schema == to_arrow_schema(BRONZE)
    found: list[dict[str, Any]] = out.to_pylist()
    return found


def encoded(*rows: tuple[int, str, str | None], job: str = "j") -> list[dict[str, Any]]:
    columns = [list(column) for column in zip(*rows, strict=True)]
    kinds = (pa.int32(), pa.string(), pa.string())
    arrays = [pa.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    batch = pa.RecordBatch.from_arrays(arrays, ["sequence", "payload", "deadline"])
    (out,) = requests.encode_requests(Run(job, "r1"), [batch])
    assert out.schema == to_arrow_schema(OUTGOING)
    found: list[dict[str, Any]] = out.to_pylist()
    return found
