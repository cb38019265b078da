"""The snapshot that a worker process publishes in its status block, for /metrics and /tasks."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from worker.codec import MalformedError
from worker.core.detached import DetachedClaim
from worker.core.model import key_text
from worker.executors.port import all_running
from worker.formats import FORMATS
from worker.process.long_tasks import origin_of

if TYPE_CHECKING:
    from worker.core.lifecycle import State
    from worker.core.owned_partition import OwnedPartition
    from worker.executors.port import Executor, Running
    from worker.formats import DecodeRequest
    from worker.kafka.ports import Consumer
    from worker.process.long_tasks import LongTasks
    from worker.process.responder import Responder
    from worker.process.shared import Shared
    from worker.process.status_block import StatusBlock

_MESSAGE_LIMIT = 200  # characters; the status block has room for little
PERIOD = 0.5  # seconds between snapshots


class Snapshots:
    """Build and publish snapshots. Used on the poll thread."""

    def __init__(
        self,
        shared: Shared,
        block: StatusBlock,
        consumer: Consumer,
        executor: Executor,
        responder: Responder,
        long_tasks: LongTasks,
    ) -> None:
        config = shared.config
        self._decode = FORMATS[config.message_format].decode_request
        self._long_after = config.long_after
        self._block = block
        self._token = shared.token
        self._metrics = shared.metrics
        self._lifecycle = shared.lifecycle
        self._assignment = shared.assignment
        self._consumer = consumer
        self._executor = executor
        self._responder = responder
        self._long_tasks = long_tasks
        self.due_at = 0.0  # when to publish the next one

    def expedite(self) -> None:
        """Publish on the next turn, so that counts are not lost with this process."""
        self.due_at = 0.0

    def publish(self, now: float) -> None:
        """Publish the current state."""
        self.due_at = now + PERIOD
        state, running = self._lifecycle.state, self._executor.running
        self._set_gauges(state)
        self._set_task_gauges()
        self._block.publish(
            {
                "state": state.name.lower(),
                "protocol": self._consumer.protocol,
                "member": self._consumer.member_id,
                "token": self._token,
                **self._metrics.snapshot(),
                "partitions": {str(owned.partition): _partition(owned) for owned in self._assignment},
                "task": None if running is None else _task(running, self._decode),
                "beside": [_task(one, self._decode) for one in self._executor.beside],
            }
        )

    def _set_gauges(self, state: State) -> None:
        owned, put = list(self._assignment), self._metrics.set
        put("state", state)
        put("assigned_partitions", len(owned))
        put("queued_records", self._assignment.queued)
        put("queued_bytes", self._assignment.queued_bytes)
        put("unconfirmed_answers", self._responder.outstanding)
        put("lag", sum(max(0, self._consumer.end(one.partition) - one.position) for one in owned))
        put("awaited_tasks", sum(len(one.detached) for one in owned))
        put("paused", int(any(one.paused for one in owned)))

    def _set_task_gauges(self) -> None:
        running, put = all_running(self._executor), self._metrics.set
        put("busy", int(bool(running)))
        put("busy_long", int(any(one.is_long(self._long_after) for one in running)))
        put("long_tasks", self._long_tasks.count)
        shown = {str(origin_of(one.task)): one.task.progress for one in running}
        put("task_progress", {origin: progress[0] for origin, progress in shown.items() if progress is not None})
        put("child_resident_bytes", self._executor.child_bytes)


def _partition(owned: OwnedPartition) -> dict[str, Any]:
    return {
        "queued": len(owned.queue),
        "committed": owned.committed[0] if owned.committed else None,
        "detached": sorted(owned.detached),
    }


def _task(running: Running, decode: DecodeRequest) -> dict[str, Any]:
    task, record = running.task, running.task.record
    try:
        sequence: int | None = decode(record.value).sequence
    except MalformedError:
        sequence = None
    fraction, message = task.progress or (None, "")
    return {
        "topic": record.partition.topic,
        "partition": record.partition.number,
        "offset": record.offset,
        "key": key_text(record.key),
        "sequence": sequence,
        "attempt": task.attempt,
        "detached": isinstance(task.claim, DetachedClaim),
        "started": round(time.time() - running.seconds, 3),
        "pid": running.pid or os.getpid(),
        "progress": fraction,
        "message": message[:_MESSAGE_LIMIT],
    }
