"""One task from a request's bytes to its answer's: what peers do that read the worker's own messages.

Imports nothing but the messages, because it runs in the environments of peers as well.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from worker.codec import OK, Request, Response

if TYPE_CHECKING:
    from collections.abc import Callable


def answer_to(
    handler: Callable[[Request, object], None], value: bytes, topic: str, partition: int, offset: int
) -> bytes:
    """Run the handler and tell about it as the worker does."""
    request = Request.FromString(value)
    answer = Response(sequence=request.sequence, isprocessed=True, outcome=OK, worker=str(os.getpid()))
    answer.origin.topic, answer.origin.partition, answer.origin.offset = topic, partition, offset
    answer.started_at.FromNanoseconds(time.time_ns())
    cpu = time.thread_time()
    handler(request, None)
    answer.cpu_seconds = time.thread_time() - cpu
    answer.finished_at.FromNanoseconds(time.time_ns())
    return answer.SerializeToString()
