"""The replica's side of ``worker stack``: reads the stacks of a task that runs here and writes them as a reply."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, NamedTuple

from worker.errors import BrokerError, WorkerError
from worker.kafka.sender import Outgoing, Sender, deliver
from worker.stacks import stacks_of_tree
from worker.state.records import partition_of
from worker.state.stack_records import StackReply, StackRequest, decode, encode, reply_key

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from worker.core.task_state import Origin

OLDEST = 60.0  # seconds; the writer of an older request no longer waits


class Runner(NamedTuple):
    """The worker process that runs a task."""

    name: str
    pid: int


class StackReplies:
    """Takes records of the state topic on the reader's thread, and replies on a second thread, one at a time.

    ``runner_of`` returns the worker process of this replica that runs a request, or None. ``write`` sends a record;
    only the second thread calls it.
    """

    def __init__(
        self,
        topic: str,
        partitions: int,
        runner_of: Callable[[Origin], Runner | None],
        write: Callable[[Outgoing], None],
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._runner_of = runner_of
        self._write = write
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="stacks")

    def take(self, key: bytes | None, value: bytes | None) -> None:
        """Reply if this is a request for the stack of a task that runs in this replica."""
        request = decode(key, value)
        if not isinstance(request, StackRequest) or time.time() - request.requested_at > OLDEST:
            return
        runner = self._runner_of(request.origin)
        if runner is not None:
            # A bug in it is logged: the library logs exceptions of callbacks.
            self._pool.submit(self._reply, request, runner).add_done_callback(Future.result)

    def _reply(self, request: StackRequest, runner: Runner) -> None:
        good = True
        try:
            text = stacks_of_tree(runner.pid, native=request.native)
        except WorkerError as error:
            text, good = str(error), False
        reply = StackReply(request.origin, request.number, runner.name, text, good)
        number = partition_of(request.origin, self._partitions)
        self._write(Outgoing(self._topic, reply_key(request.origin), encode(reply), partition=number))


def write_reply(properties: Mapping[str, Any], record: Outgoing) -> None:
    """Write a reply. Raise BrokerError if it was not confirmed. ``properties`` are those of any client."""
    sender = Sender({name: value for name, value in properties.items() if name != "group.id"}, OLDEST)
    (delivery,) = deliver(sender, [record])
    if delivery.failure is not None:
        raise BrokerError(f"the reply with stacks was not written to {record.topic}: {delivery.failure}")
