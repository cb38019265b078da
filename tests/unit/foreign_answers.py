"""An answer that a newer program has written, to somebody else's request."""

from __future__ import annotations

from worker.codec import Response


def foreign() -> bytes:
    response = Response(isprocessed=True, outcome=9)  # type: ignore[arg-type]
    response.origin.topic, response.origin.partition, response.origin.offset = "others", 0, 1
    return response.SerializeToString()
