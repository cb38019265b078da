"""What to write to the state topic about one long task, and when. Pure: ``now`` is passed in."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

from worker.core.task_state import CANCELLING, HEARTBEAT_SECONDS, WAITING, TaskState

if TYPE_CHECKING:
    from worker.core.task_state import Origin

PROGRESS_SECONDS = 1.0  # at least, between two records that only report progress
RETRY_SECONDS = 1.0  # after a record that was not delivered
YIELD_SECONDS = 10.0  # after two heartbeats at the latest, a process knows that it has lost a partition


class LongTask:
    """The record of one request: what is known, what was written, and whether to write again. Used on the poll thread.

    At most one record is being written at a time. Later changes go into the next record, so the latest values win, and
    the tombstone comes last.
    """

    __slots__ = (
        *("_changed", "_confirmed", "_not_before", "_sent", "_sent_at", "_urgent", "_yields"),
        *("announced", "answered", "former", "over", "state"),
    )

    def __init__(self, state: TaskState, *, announced: bool = False, former: str = "") -> None:
        self.state = state
        self.former = former  # the process that wrote the record if this process has only adopted it
        self.announced = announced  # the topic has, or may have, a record
        self.answered = False  # the request is answered, but its state stays until a confirmed commit covers the answer
        self.over = False  # the request is settled
        self._confirmed = state  # with the last checkpoint that the topic has accepted
        self._sent: TaskState | None = None
        self._changed = self._urgent = self._yields = False
        self._not_before = 0.0
        self._sent_at = -math.inf

    # -- events of the task

    def announce(self) -> None:
        """Announce the task, because it has run long enough or its record belongs to another start."""
        self._urgent = self._urgent or not self.announced

    def progress(self, fraction: float, message: str) -> None:
        """Record the progress that the handler reported."""
        self.state = dataclasses.replace(self.state, progress=fraction, message=message)
        self._changed = True
        self.announce()

    def checkpoint(self, data: bytes) -> None:
        """Record a checkpoint of the handler. One equal to the checkpoint that it resumed from is not a new one."""
        state = self.state
        epoch = state.checkpoint_epoch if data == state.resume else state.epoch
        self.state = dataclasses.replace(state, checkpoint=data, checkpoint_epoch=epoch)
        self._urgent = True

    def started(self, state: TaskState) -> None:
        """Record that the request has started again. ``state`` describes the new start."""
        self.state = dataclasses.replace(
            state,
            epoch=max(state.epoch, self.state.epoch + 1),
            checkpoint=self.state.checkpoint,
            checkpoint_epoch=self.state.checkpoint_epoch,
        )
        self._urgent = self._urgent or self.announced

    def become(self, name: str) -> None:
        """Set the state: ``cancelling``, or ``waiting`` for the next start."""
        if self.state.state != name:
            self.state = dataclasses.replace(self.state, state=name)
            self._urgent = self._urgent or self.announced

    def written_over(self) -> None:
        """Write the record again after an earlier start wrote its own, so that compaction keeps ours."""
        self._urgent = True

    def saved_late(self, other: TaskState) -> None:
        """Adopt the checkpoint that the former owner saved after this process had read the topic. No start runs."""
        state = self.state
        self.state = dataclasses.replace(
            state, checkpoint=other.checkpoint, checkpoint_epoch=other.checkpoint_epoch, progress=other.progress
        )
        self._urgent = True

    def outranked(self, epoch: int, now: float) -> None:
        """Hold back the record, because a later start has written it or another process has removed it.

        Either this process or the other one has lost the partition and does not know it yet. So write nothing until
        this process would know, and then write a record that is later still.
        """
        state = self.state
        if epoch >= state.epoch:
            checkpoint_epoch = epoch + 1 if state.made_checkpoint else state.checkpoint_epoch
            self.state = dataclasses.replace(state, epoch=epoch + 1, checkpoint_epoch=checkpoint_epoch)
        self._urgent = True
        if not self._yields:
            self._yields, self._not_before = True, now + YIELD_SECONDS

    def settle(self) -> None:
        """Record that the request is settled. Only the tombstone is left to write."""
        self.over, self.answered = True, False

    # -- writing

    @property
    def origin(self) -> Origin:
        """Return the origin of the request."""
        return self.state.origin

    @property
    def pending(self) -> bool:
        """Return whether the topic still lacks something that the next owner needs."""
        return self._sent is not None or self._urgent or (self.over and self.announced)

    @property
    def done(self) -> bool:
        """Return whether nothing is left to write."""
        return self.over and not self.announced and self._sent is None

    def due(self, now: float) -> bool:
        """Return whether to write the next record now."""
        if self._sent is not None or now < self._not_before:
            return False
        if self.over:
            return self.announced
        if self._urgent or not self.announced:
            return self._urgent
        since = now - self._sent_at
        return since >= PROGRESS_SECONDS if self._changed else self.runs and since >= HEARTBEAT_SECONDS

    def take(self, now: float, now_ns: int) -> TaskState | None:
        """Return the record to write; None is the tombstone. Call ``confirmed`` or ``failed`` afterwards."""
        self._sent = self.state = dataclasses.replace(self.state, updated_ns=now_ns)
        self._sent_at, self._changed, self._urgent, self._yields = now, False, False, False
        self.announced = True
        return None if self.over else self.state

    def confirmed(self, *, removed: bool) -> None:
        """Record that the topic has the last record. ``removed`` means that it was the tombstone."""
        if self._sent is not None:
            self._confirmed = self._sent
        self._sent = None
        self.announced = not removed

    def failed(self, now: float, *, too_large: bool) -> bool:
        """Record that the last record was not delivered. Return whether its checkpoint is too large and given up."""
        sent, self._sent, self._urgent = self._sent, None, True
        self._not_before = max(self._not_before, now + RETRY_SECONDS)
        if not too_large or sent is None or sent.checkpoint == self._confirmed.checkpoint:
            return False
        if self.state.checkpoint == sent.checkpoint:  # a later one may be smaller
            old = self._confirmed
            self.state = dataclasses.replace(
                self.state, checkpoint=old.checkpoint, checkpoint_epoch=min(old.checkpoint_epoch, self.state.epoch)
            )
        return True

    # -- state

    @property
    def runs(self) -> bool:
        """Return whether a start of it is running, according to its record."""
        return self.state.state != WAITING and not self.answered

    @property
    def checkpoint_confirmed(self) -> bool:
        """Return whether the topic has a checkpoint of this start other than the one it resumed from."""
        return self._confirmed.made_checkpoint and self._confirmed.epoch == self.state.epoch

    @property
    def cancelling_confirmed(self) -> bool:
        """Return whether the topic says that it was asked to stop."""
        return self._confirmed.state == CANCELLING and self._sent is None
