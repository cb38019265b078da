"""Group calls on the fake broker and its clock, without a real thread, so that every run is the same."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from worker.kafka.ports import KafkaFailure, MemberView, Position

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.core.model import Partition
    from worker.testing.broker import FakeBroker

SECONDS = 0.002  # that a call takes


class FakeGroupClient:
    """See ``worker.kafka.ports.GroupClient``."""

    def __init__(self, broker: FakeBroker) -> None:
        self._broker = broker

    def members(self, group: str) -> list[MemberView] | KafkaFailure:
        """See ``ports.GroupClient``."""
        found = self._broker.group(group)
        found.expire()
        return [MemberView(member.client_id, frozenset(owned)) for member, owned in found.members()]

    def committed(self, group: str, partition: Partition, *, stable: bool) -> Position | KafkaFailure | None:
        """See ``ports.GroupClient``."""
        found = self._broker.group(group)
        if stable and found.pending[partition]:
            return KafkaFailure("UNSTABLE_OFFSET_COMMIT", "a transaction is open", retriable=True)
        return found.committed.get(partition)

    def commit(self, group: str, partition: Partition, position: Position) -> KafkaFailure | None:
        """See ``ports.GroupClient``."""
        self._broker.group(group).set_committed("", {partition: position})
        return None

    def delete(self, group: str) -> KafkaFailure | None:
        """See ``ports.GroupClient``."""
        self._broker.groups.pop(group, None)
        return None


class FakeGroupCalls:
    """See ``worker.process.group_calls.GroupCalls``."""

    def __init__(self, broker: FakeBroker, notify: Callable[[], None]) -> None:
        self._broker, self._notify = broker, notify
        self._client = FakeGroupClient(broker)
        self._answers: deque[tuple[Callable[[Any], None], Any]] = deque()

    def send(self, request: Callable[[FakeGroupClient], Any], then: Callable[[Any], None]) -> None:
        """Run ``request`` on the broker. A later ``serve`` passes its result to ``then``."""

        def answer() -> None:
            self._answers.append((then, request(self._client)))
            self._notify()

        self._broker.request(answer, SECONDS)

    def serve(self, _now: float) -> None:
        """Pass on the results."""
        while self._answers:
            then, result = self._answers.popleft()
            then(result)
