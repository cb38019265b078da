"""A listener that writes down what it is told, and does what a test wants done inside the callback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.model import Partition
    from worker.kafka.ports import KafkaFailure


class Recorder:
    """See ``worker.kafka.ports.Listener``."""

    def __init__(self, **hooks: Callable[..., Any]) -> None:
        self.owned: set[Partition] = set()
        self.events: list[str] = []  # kinds, in order
        self.answers: list[tuple[dict[Partition, int], KafkaFailure | None]] = []
        self._hooks = hooks

    def _note(self, kind: str, *arguments: Any) -> None:
        self.events.append(kind)
        if kind in self._hooks:
            self._hooks[kind](*arguments)

    def assigned(self, partitions: Sequence[Partition]) -> None:
        assert partitions, "nothing is no news"
        assert self.owned.isdisjoint(partitions), "assigned twice"
        self.owned |= set(partitions)
        self._note("assigned", partitions)

    def revoked(self, partitions: Sequence[Partition]) -> None:
        self._go("revoked", partitions)

    def lost(self, partitions: Sequence[Partition]) -> None:
        self._go("lost", partitions)

    def _go(self, kind: str, partitions: Sequence[Partition]) -> None:
        assert partitions
        assert self.owned.issuperset(partitions), f"{kind} although it was not ours"
        self.owned -= set(partitions)
        self._note(kind, partitions)

    def committed(self, offsets: Mapping[Partition, int], failure: KafkaFailure | None) -> None:
        self.answers.append((dict(offsets), failure))
        self._note("committed", offsets, failure)
