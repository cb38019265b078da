"""Where the store that holds results and offsets meets the poll thread: where to begin, and what has no result."""

from __future__ import annotations

from typing import TYPE_CHECKING

import structlog

from worker.core.model import Record, Task
from worker.handlers.storing import outcome_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.lane import Lane
    from worker.core.model import Outcome, Partition
    from worker.stores.port import OffsetStore

log = structlog.get_logger("store")


class StoreDesk:
    """The store says where to go on; what Kafka has committed only says which answers may be missing. Poll thread."""

    def __init__(self, store: OffsetStore, settled: Callable[..., None]) -> None:
        self._store = store
        self._settled = settled
        self._without_result: set[tuple[Lane, int]] = set()

    def begin(
        self, partitions: Sequence[Partition], lanes: Mapping[Partition, Lane], answer: Callable[[Outcome], None]
    ) -> dict[Partition, int]:
        """The offsets to begin with; results that were kept and may not have been answered are answered again."""
        positions = dict(self._store.positions(partitions))
        for partition, offset in positions.items():
            lane = lanes[partition]
            if lane.base is not None and lane.base < offset:
                self._answer_again(lane, lane.base, offset, answer)
        return positions

    def _answer_again(self, lane: Lane, start: int, stop: int, answer: Callable[[Outcome], None]) -> None:
        count = 0
        for stored in self._store.answers(lane.partition, start, stop):
            count += 1
            lane.ledger.admit(stored.offset)
            record = Record(lane.partition, stored.offset, stored.key, None)
            answer(outcome_of(stored, Task(record, lane)))
        lane.end(stop)
        log.info("store.answered_again", partition=str(lane.partition), start=start, stop=stop, answers=count)

    def without_result(self, outcome: Outcome) -> None:
        """Remember a request that is being answered and of which the store has nothing."""
        self._without_result.add((outcome.task.lane, outcome.task.record.offset))

    def settled(self, lane: Lane, *offsets: int) -> None:
        """The answers are certain: what has no result is passed over in the store only now, lest it be lost."""
        for offset in offsets:
            if (lane, offset) in self._without_result:
                self._without_result.remove((lane, offset))
                if lane.open:
                    self._store.skip(lane.partition, offset)
        self._settled(lane, *offsets)
