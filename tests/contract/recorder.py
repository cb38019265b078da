"""A listener that writes down what it is told, and does what a test wants done inside the callback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.model import Partition
    from worker.kafka.ports import KafkaFailure, Position


class Recorder:
    """See ``worker.kafka.ports.Listener``."""

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        self.owned: set[Partition] = set()
        self.events: list[str] = []  # kinds, in order
        self.found: dict[Partition, Position | None] = {}  # what was committed when they were assigned
        self.answers: list[tuple[dict[Partition, Position], KafkaFailure | None]] = []
        self._hooks = hooks

    def _note(self, kind: str, *arguments: Any) -> Any:
        self.events.append(kind)
        return self._hooks[kind](*arguments) if kind in self._hooks else None

    def assigned(self, positions: Mapping[Partition, Position | None]) -> Mapping[Partition, int]:
        """A hook may say where to begin."""
        assert positions, "nothing is no news"
        assert self.owned.isdisjoint(positions), "assigned twice"
        self.owned |= set(positions)
        self.found.update(positions)
        return self._note("assigned", positions) or {}

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self._go("revoked", partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        self._go("lost", partitions)

    def _go(self, kind: str, partitions: Sequence[Partition]) -> None:
        assert partitions
        assert self.owned.issuperset(partitions), f"{kind} although it was not ours"
        self.owned -= set(partitions)
        self._note(kind, partitions)

    def committed(self, positions: Mapping[Partition, Position], failure: KafkaFailure | None) -> None:
        self.answers.append((dict(positions), failure))
        self._note("committed", positions, failure)
