"""One task, from the bytes of a request to the bytes of its answer, for peers that read the worker's messages.

It imports only the messages, because it also runs in the environments of peers.
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
    """Run the handler and return the answer that the worker would give."""
    request = Request.FromString(value)
    answer = Response(sequence=request.sequence, isprocessed=True, outcome=OK, worker=str(os.getpid()))
    answer.origin.topic, answer.origin.partition, answer.origin.offset = topic, partition, offset
    answer.started_at.FromNanoseconds(time.time_ns())
    cpu = time.thread_time()
    handler(request, None)
    answer.cpu_seconds = time.thread_time() - cpu
    answer.finished_at.FromNanoseconds(time.time_ns())
    return answer.SerializeToString()
