"""An answer of a newer program, with an unknown outcome, to a request of another client."""

from __future__ import annotations

from worker.codec import Response


def foreign() -> bytes:
    response = Response(isprocessed=True, outcome=9)  # type: ignore[arg-type]
    response.origin.topic, response.origin.partition, response.origin.offset = "others", 0, 1
    return response.SerializeToString()
