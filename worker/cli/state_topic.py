"""Access to the state topic for the commands: the long tasks of the whole group, read from Kafka."""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING

from worker.errors import BrokerError, SettingsError
from worker.state.table import StateTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from worker.cli.access import Access
    from worker.cli.console import Stop
    from worker.core.task_state import TaskState
    from worker.state.table import Change

TIMEOUT = 30.0  # seconds without a reply from the broker


def topic_of(access: Access) -> str:
    """Return the state topic. Raise SettingsError if none is set."""
    topic = access.settings.state_topic
    if not topic:
        raise SettingsError(
            "KAFKA_STATE_TOPIC is not set: long tasks are shown and cancelled through the state topic; "
            "set it to the topic that worker run uses"
        )
    return topic


@contextlib.contextmanager
def needing(operation: str, topic: str) -> Iterator[None]:
    """Name the missing permission if the broker refuses READ or WRITE on the state topic."""
    try:
        yield
    except BrokerError as error:
        if "AUTHORIZATION_FAILED" not in str(error):
            raise
        text = f"no permission to {operation} topic {topic!r} (KAFKA_STATE_TOPIC): grant it to this user (ACL)"
        raise BrokerError(text) from error


class StateTopic:
    """A reader of the state topic, from its beginning or its end. ``table`` has what was read so far.

    Raises SettingsError if no state topic is set, and BrokerError if it cannot be read.
    """

    def __init__(self, access: Access, *, from_end: bool = False) -> None:
        self.topic = topic_of(access)
        self._requests = access.settings.request_topics
        with needing("READ", self.topic):
            places = access.cluster.partitions(self.topic)
            spans = access.cluster.spans(places)
        self.partitions = len(places)
        self.table = StateTable()
        self._reader = access.reader({place: span.end if from_end else span.start for place, span in spans.items()})

    def states(self) -> list[TaskState]:
        """Return the long tasks of our request topics. Other groups may use the same state topic."""
        return [state for origin, state in self.table.states.items() if origin.topic in self._requests]

    def poll(self, timeout: float) -> list[Change]:
        """Process the next records, waiting up to ``timeout`` seconds for the first. Return what they changed."""
        with needing("READ", self.topic):
            records = self._reader.poll(timeout)
        changes = (self.table.apply(record.key, record.value) for record in records)
        return [change for change in changes if change is not None]

    def read(self, stop: Stop) -> None:
        """Read everything up to the end at creation, unless stopped. Raise BrokerError if the broker stops replying."""
        heard = time.monotonic()
        while not self._reader.at_end and not stop:
            if self.poll(0.2):
                heard = time.monotonic()
            elif time.monotonic() - heard > TIMEOUT:
                raise BrokerError(f"reading {self.topic} stopped before its end: Kafka sent nothing for {TIMEOUT:g} s")

    def close(self) -> None:
        """Free the client."""
        self._reader.close()
