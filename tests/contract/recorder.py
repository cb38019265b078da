"""A listener that records its calls, and runs hooks of a test inside them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.model import Partition
    from worker.kafka.ports import Consumer, KafkaFailure, Position


class Recorder:
    """A listener as in ``worker.kafka.ports.RebalanceListener`` and ``CommitListener``.

    It releases revoked partitions immediately, unless the hook ``revoked`` returns False. Then the test releases them.
    """

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        self.consumer: Consumer | None = None
        self.is_ready = True
        self.last_revoked: set[Partition] = set()
        self.owned: set[Partition] = set()
        self.events: list[str] = []  # kinds, in order
        self.found: dict[Partition, Position | None] = {}  # committed positions at the assignment
        self.answers: list[tuple[dict[Partition, Position], KafkaFailure | None]] = []
        self._hooks = hooks

    def _record(self, kind: str, *arguments: Any) -> Any:
        self.events.append(kind)
        return self._hooks[kind](*arguments) if kind in self._hooks else None

    def listen(self, consumer: Consumer, *topics: str) -> None:
        """Join the group, with this recorder as the listener."""
        self.consumer = consumer
        consumer.subscribe(topics, self, self)

    def ready(self, _partitions: Sequence[Partition]) -> bool:
        return self.is_ready

    def assigned(self, positions: Mapping[Partition, Position | None]) -> Mapping[Partition, int] | None:
        """Return the offsets that a hook returns. The hook returns False if it does not know them yet."""
        assert positions, "nothing is no news"
        assert self.owned.isdisjoint(positions), "assigned twice"
        self.owned |= set(positions)
        self.found.update(positions)
        begin = self._record("assigned", positions)
        if begin is False:
            self.owned -= set(positions)
            return None
        return begin or {}

    def revoked(self, partitions: Sequence[Partition]) -> None:
        assert partitions
        assert self.owned.issuperset(partitions), "revoked although it was not ours"
        self.last_revoked = set(partitions)
        if self._record("revoked", partitions) is not False:
            self.release(partitions)

    def release(self, partitions: Sequence[Partition]) -> None:
        """Give revoked partitions back."""
        self.owned -= set(partitions)
        assert self.consumer is not None
        self.consumer.release(partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        self._go("lost", partitions)

    def _go(self, kind: str, partitions: Sequence[Partition]) -> None:
        assert partitions
        assert self.owned.issuperset(partitions), f"{kind} although it was not ours"
        self.owned -= set(partitions)
        self._record(kind, partitions)

    def committed(self, positions: Mapping[Partition, Position], failure: KafkaFailure | None) -> None:
        self.answers.append((dict(positions), failure))
        self._record("committed", positions, failure)
