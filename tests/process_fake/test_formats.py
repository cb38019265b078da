"""A worker process that reads and writes JSON."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from worker.testing import Cluster, WorkerProcess
from worker.testing.process import ACK_TOPIC, REQUEST_TOPIC, config_of

if TYPE_CHECKING:
    from worker.codec import Request
    from worker.handlers.batch import Batch

SURROGATE = b'{"sequence": " \\ud800"}'  # the error quotes it, and no answer can hold it
VALUES = (b"Ada", b'{"name": "Ada"}', b'{"payload": "Ada", "sequence": 7}', b'{"payload": 5}', SURROGATE)


def shout(request: Request, _context: object) -> dict[str, object]:
    return {"heard": request.payload}


def shout_all(batch: Batch, _context: object) -> None:
    for task in batch:
        batch.ack(task, {"heard": task.payload})


@pytest.mark.parametrize("guarantee", ["at-least-once", "at-most-once", "exactly-once"])
@pytest.mark.parametrize("batch_size", [1, 3])
def test_a_process_reads_json_requests_and_writes_json_answers(guarantee: str, batch_size: int) -> None:
    config = config_of(
        "worker-0",
        ordering="partition",
        guarantee=guarantee,
        max_attempts=3,
        retry_first=1.0,
        retry_greatest=1.0,
        batch_size=batch_size,
        handler_kwargs={},
        message_format="json",
    )
    with Cluster(partitions=1) as cluster:
        for value in VALUES:
            cluster.broker.append(REQUEST_TOPIC, value)
        cluster.processes.append(WorkerProcess(cluster.broker, config, shout if batch_size == 1 else shout_all))
        answers = cluster.answers(len(VALUES))
        records = cluster.broker.records(ACK_TOPIC)
    assert [(a.sequence, a.outcome, a.error_type, a.result) for a in sorted(answers, key=lambda a: a.origin)] == [
        (0, "OK", "", b'{"heard":"Ada"}'),
        (0, "OK", "", b'{"heard":"{\\"name\\": \\"Ada\\"}"}'),
        (7, "OK", "", b'{"heard":"Ada"}'),
        (0, "DEAD_LETTERED", "MalformedRequest", b""),
        (0, "DEAD_LETTERED", "MalformedRequest", b""),
    ]
    assert {json.loads(record.value or b"")["isprocessed"] for record in records} == {True, False}
