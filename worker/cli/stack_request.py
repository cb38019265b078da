"""``worker stack`` for a task on another machine: sends a request on the state topic and reads the reply."""

from __future__ import annotations

import contextlib
import time
import uuid
from typing import TYPE_CHECKING

from worker.cli.state_topic import needing, topic_of
from worker.errors import BrokerError
from worker.kafka.sender import Outgoing, deliver
from worker.state.records import partition_of
from worker.state.stack_records import StackReply, StackRequest, decode, encode, reply_key, request_key

if TYPE_CHECKING:
    from worker.cli.access import Access
    from worker.cli.console import Stop
    from worker.core.deadline import Deadline
    from worker.core.model import Partition
    from worker.core.task_state import Origin
    from worker.kafka.reader import Reader
    from worker.kafka.sender import Sender


def request_stacks(
    access: Access, origin: Origin, deadline: Deadline, stop: Stop, *, native: bool
) -> StackReply | None:
    """Return the reply of the replica that runs the task, or None if none replied. May raise BrokerError."""
    topic = topic_of(access)
    with needing("READ", topic):
        places = access.cluster.partitions(topic)
    place = places[partition_of(origin, len(places))]
    start = access.cluster.spans([place])[place].end
    request = StackRequest(origin, uuid.uuid4().hex, time.time(), native)
    sender = access.sender()
    with contextlib.closing(access.reader({place: start})) as reader:
        _write(sender, place, request_key(origin), encode(request))
        try:
            return _reply(reader, topic, request, deadline, stop)
        finally:
            _write(sender, place, request_key(origin), None)
            _write(sender, place, reply_key(origin), None)


def _reply(reader: Reader, topic: str, request: StackRequest, deadline: Deadline, stop: Stop) -> StackReply | None:
    while not stop and not deadline.passed(time.monotonic()):
        with needing("READ", topic):
            records = reader.poll(0.2)
        for record in records:
            found = decode(record.key, record.value)
            if isinstance(found, StackReply) and (found.origin, found.number) == (request.origin, request.number):
                return found
    return None


def _write(sender: Sender, place: Partition, key: bytes, value: bytes | None) -> None:
    (delivery,) = deliver(sender, [Outgoing(place.topic, key, value, partition=place.number)])
    if delivery.failure is not None:
        with needing("WRITE", place.topic):
            raise BrokerError(f"writing to {place.topic} (KAFKA_STATE_TOPIC) failed: {delivery.failure}")
