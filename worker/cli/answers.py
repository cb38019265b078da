"""Converts answers to JSON, for ``worker submit --output``."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any

from worker.codec import Response, name_of

if TYPE_CHECKING:
    from google.protobuf.timestamp_pb2 import Timestamp

    from worker.core.model import Record


def outcome_of(response: Response) -> str:
    """Return the name of the outcome. If only the first two fields are set: OK or FAILED, by ``isprocessed``."""
    if response.outcome:
        return name_of(response.outcome)
    return "OK" if response.isprocessed else "FAILED"


def as_json(record: Record, response: Response) -> dict[str, Any]:
    """Return the answer with its key and position. A result that is not UTF-8 text is in ``result_base64`` instead."""
    origin = response.origin
    return {
        "sequence": response.sequence,
        "outcome": outcome_of(response),
        **_text_or_base64("result", response.result),
        **_text_or_base64("key", record.key or b""),
        "error": _error(response),
        "origin": {"topic": origin.topic, "partition": origin.partition, "offset": origin.offset},
        "answer": {"partition": record.partition.number, "offset": record.offset},
        "attempt": response.attempt,
        "worker": response.worker,
        "started_at": _time(response.started_at) if response.HasField("started_at") else None,
        "finished_at": _time(response.finished_at) if response.HasField("finished_at") else None,
        "cpu_seconds": response.cpu_seconds,
    }


def _text_or_base64(name: str, value: bytes) -> dict[str, str]:
    try:
        return {name: value.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(value).decode()}


def _error(response: Response) -> dict[str, str] | None:
    if not response.HasField("error"):
        return None
    return {"type": response.error.type, "message": response.error.message, "traceback": response.error.traceback}


def _time(stamp: Timestamp) -> str:
    return stamp.ToJsonString()
