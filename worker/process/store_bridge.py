"""The poll thread's side of an offset store: where partitions start, and requests without a result."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.core.model import Record, Task
from worker.handlers.stored_attempt import outcome_of
from worker.stores.port import RefusedError, StoreUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from worker.core.assignment import Assignment
    from worker.core.claim import Claim
    from worker.core.model import Outcome, Partition
    from worker.kafka.ports import Position
    from worker.process.responder import Responder
    from worker.stores.port import OffsetStore, StoredAnswer

RETRY_SECONDS = 1.0  # between attempts while the store cannot be reached

log = structlog.get_logger("store")


class Beginning(NamedTuple):
    """Where partitions start, and the stored answers that Kafka may not have."""

    offsets: Mapping[Partition, int]
    missing: Mapping[Partition, Sequence[StoredAnswer]]


class StoreBridge:
    """Asks the store where to continue. Kafka's committed offset only shows which answers may be missing.

    So the group commits an offset before the first task of a partition starts (``OwnedPartition.needs_commit``). If the
    store has results and Kafka has no offset, the group's offsets have expired, and no answer is sent again.

    A store that cannot be reached never stops the poll thread. Only new partitions and the settling of requests without
    a result wait.
    """

    def __init__(self, store: OffsetStore, settled: Callable[..., None]) -> None:
        self._store = store
        self._settled = settled
        self._without_result: set[tuple[Claim, int]] = set()
        self._to_skip: deque[tuple[Claim, Partition, int]] = deque()
        self._not_before = 0.0
        self._usable = False  # whether the store has ever answered

    def begin(self, positions: Mapping[Partition, Position | None]) -> Beginning | None:
        """Return where partitions start, given Kafka's committed ``positions``; None if the store is not available.

        Raise RefusedError if the store refuses from the beginning.
        """
        try:
            offsets = dict(self._store.positions(list(positions)))
            missing = {}
            for partition, offset in offsets.items():
                committed = positions[partition]
                if committed is not None and committed.offset < offset:
                    missing[partition] = list(self._store.answers(partition, committed.offset, offset))
        except (StoreUnavailableError, RefusedError) as error:
            if isinstance(error, RefusedError) and not self._usable:
                raise  # it is not set up correctly; later, somebody may be changing its tables
            log.warning("store.unavailable", reason=str(error))
            return None
        self._usable = True
        return Beginning(offsets, missing)

    @staticmethod
    def resend(beginning: Beginning, assignment: Assignment, responder: Responder) -> None:
        """Send the answers again whose results are in the store but which Kafka may not have."""
        for partition, answers in beginning.missing.items():
            owned, stop = assignment.partitions[partition], beginning.offsets[partition]
            for stored in answers:
                owned.offsets.admit(stored.offset)
                owned.answering_again()
                record = Record(partition, stored.offset, stored.key, None)
                responder.ok(outcome_of(stored, Task(record, owned.lease)))
            owned.reached_end(stop)
            start = owned.start_offset
            log.info("store.answers_resent", partition=str(partition), start=start, stop=stop, answers=len(answers))

    def without_result(self, outcome: Outcome) -> None:
        """Remember a request that is being answered and has no result in the store."""
        self._without_result.add((outcome.task.claim, outcome.task.record.offset))

    @property
    def waits(self) -> bool:
        """Return whether a request without a result is not settled yet.

        No other may start meanwhile: its result would move the store past that request. If this process then died, no
        process would answer it.
        """
        self._without_result = {(claim, offset) for claim, offset in self._without_result if claim.valid}
        return bool(self._without_result or self._to_skip)

    def settled(self, claim: Claim, partition: Partition, *offsets: int) -> None:
        """Record that the answers are confirmed. Only now does the store move past requests without a result."""
        plain = []
        for offset in offsets:
            if (claim, offset) in self._without_result:
                self._without_result.remove((claim, offset))
                self._to_skip.append((claim, partition, offset))
            else:
                plain.append(offset)
        if plain:
            self._settled(claim, partition, *plain)

    def serve(self, now: float) -> None:
        """Move the store past requests without a result, and settle them afterwards."""
        while self._to_skip and now >= self._not_before:
            claim, partition, offset = self._to_skip[0]
            try:
                if claim.valid:
                    self._store.skip(partition, offset)
            except (StoreUnavailableError, RefusedError) as error:
                log.warning("store.unavailable", reason=str(error))
                self._not_before = now + RETRY_SECONDS
                return
            self._to_skip.popleft()
            self._settled(claim, partition, offset)

    def close(self) -> None:
        """Close the store's connections. Call it only while no transaction is open."""
        self._store.close()
