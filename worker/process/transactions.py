"""Exactly once: answers, dead letters and offsets in transactions that are begun when the work is done."""

from __future__ import annotations

import itertools
import math
import time
from collections import deque
from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.core.model import ages
from worker.kafka.ports import Transaction
from worker.process.committer import Committer, Sent
from worker.process.units import Unit, Units

if TYPE_CHECKING:
    from collections.abc import Callable

    from worker.codec import AnswerEncoder
    from worker.core.lane import Lane
    from worker.core.model import Failure, Outcome
    from worker.kafka.ports import Consumer, Ended, KafkaFailure
    from worker.metrics import Metrics
    from worker.process.config import ProcessConfig
    from worker.process.courier import Courier
    from worker.process.tasklog import TaskLog

MOST_UNITS = 4_096  # answers in one transaction
MOST_BYTES = 8 * 1024 * 1024
REDO_SECONDS = (0.05, 1.0)  # the first and the greatest delay before an aborted transaction is tried again
SETTLE_SECONDS = 30.0  # to wait for a transaction under way when partitions are given back
_TOO_LARGE = "MSG_SIZE_TOO_LARGE"
_EXPELLED = {"UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "FENCED_INSTANCE_ID"}  # the group knows this member no more

log = structlog.get_logger("transactions")


class _UnderWay(NamedTuple):
    """A transaction under way."""

    units: list[Unit]
    marks: list[Sent]  # what it commits for each lane


class Transactions:
    """Takes outcomes as ``Answers`` does. While one transaction is under way, the next gathers. Poll thread.

    What a transaction settles is settled in the ledgers when it is sent: nothing else commits meanwhile (``busy``), and
    one that was aborted is tried again until it is committed or the leases of its requests have ended.
    """

    def __init__(
        self,
        config: ProcessConfig,
        courier: Courier,
        encoder: AnswerEncoder,
        consumer: Consumer,
        committer: Committer,
        lanes: Callable[[], list[Lane]],
        metrics: Metrics,
        tasklog: TaskLog,
        clock: Callable[[], float],
    ) -> None:
        self.answered = 0  # requests whose answer was committed
        self.outstanding = 0  # requests whose answer is under way or gathered
        self.outstanding_bytes = 0  # what they hold in memory
        self.expelled = False
        self._config = config
        self._courier = courier
        self._units = Units(config, encoder)
        self._consumer = consumer
        self._committer = committer
        self._lanes = lanes
        self._metrics = metrics
        self._tasklog = tasklog
        self._clock = clock
        self._member: object | None = None
        self._gathered: deque[Unit] = deque()
        self._gathered_at = 0.0
        self._again: deque[Unit] = deque()  # settled in the ledger, and their transaction was aborted
        self._sent: _UnderWay | None = None
        self._sent_at = 0.0
        self._not_before = 0.0
        self._delay = REDO_SECONDS[0]
        self._most = MOST_UNITS
        self._serials = itertools.count(time.time_ns() // 1000)

    # -- what is to be answered

    def ok(self, outcome: Outcome) -> None:
        """Answer with the handler's result; one that no record can hold goes to the dead letters."""
        self._gather(self._units.ok(outcome))

    def bury(self, outcome: Outcome, failure: Failure) -> None:
        """Dead letter and answer."""
        self._gather(self._units.dead(outcome, failure))

    def refuse(self, outcome: Outcome, failure: Failure, name: str) -> None:
        """Answer with ``EXPIRED`` or ``CANCELLED``."""
        self._gather(self._units.refused(outcome, failure, name))

    def _gather(self, unit: Unit) -> None:
        if not self._gathered:
            self._gathered_at = self._clock()
        self._gathered.append(unit)
        task = unit.outcome.task
        task.lane.unconfirmed += 1
        self.outstanding += 1
        self.outstanding_bytes += task.size + len(unit.outcome.result)

    # -- transactions

    def serve(self, timeout: float, now: float) -> None:
        """Take in how the transaction under way ended, waiting at most ``timeout`` seconds; send the next if due."""
        ended = self._courier.ended(timeout)
        if ended is not None:
            self._take_in(ended, now)
        if not self._courier.busy and not self._committer.in_flight and self._due(now):
            self._send()

    def joined(self) -> None:
        """Partitions were assigned: from here on this is who commits for them."""
        self._member = self._consumer.membership()
        self.expelled = False

    @property
    def busy(self) -> bool:
        """Whether the ledgers are ahead of what is committed."""
        return self._courier.busy or bool(self._again)

    @property
    def under_way(self) -> bool:
        """Whether there is something to wait for."""
        return self._courier.busy

    def next_repeat(self) -> float:
        """When something is due by the clock (infinity: nothing is)."""
        if self._courier.busy or not (self._again or self._gathered):
            return math.inf
        return max(self._not_before, self._gathered_at + self._config.commit_interval if not self._again else 0.0)

    def settle_down(self) -> None:
        """Wait until no transaction is under way or to be repeated, for a while: partitions are given back."""
        limit = self._clock() + SETTLE_SECONDS
        while self.busy and not self.expelled and self._clock() < limit:
            ended = self._courier.ended(0.01)
            if ended is not None:
                self._take_in(ended, self._clock())
            if not self._courier.busy and self._again:
                self._send(gathered=False)

    def decided(self, timeout: float, now: float) -> bool:
        """Whether no transaction is under way, after at most ``timeout`` seconds. Sends none."""
        if self._courier.busy and (ended := self._courier.ended(timeout)) is not None:
            self._take_in(ended, now)
        return not self._courier.busy

    def _due(self, now: float) -> bool:
        if now < self._not_before:
            return False
        if self._again or len(self._gathered) >= self._config.commit_every:
            return bool(self._again or self._gathered)
        if now - self._gathered_at >= self._config.commit_interval or self._committer.leaving:
            return bool(self._gathered)
        return any(unit.outcome.task.lane.leaving for unit in self._gathered)

    def _send(self, *, gathered: bool = True) -> None:
        units = self._pick(self._again) or (self._pick(self._gathered) if gathered else [])
        if not units:
            return
        serial = f"{next(self._serials):x}"
        open_lanes = [lane for lane in self._lanes() if lane.open and lane.known]
        touched = {unit.outcome.task.lane for unit in units}
        marks = []
        for lane in open_lanes:
            if lane in touched or lane.changed or lane.wish > lane.permit:
                lane.changed = False
                marks.append(Sent(lane, self._committer.position(lane, working=True, serial=serial), lane.wish))
        messages = [message for unit in units for message in unit.messages]
        positions = {lane.partition: position for lane, position, _ in marks}
        if self._member is None:
            self._member = self._consumer.membership()
        self._sent, self._sent_at = _UnderWay(units, marks), self._clock()
        self._courier.send(Transaction(messages, positions, self._member))

    def _pick(self, source: deque[Unit]) -> list[Unit]:
        """The next units of valid leases, settled in their ledgers; the others are let go."""
        picked: list[Unit] = []
        size = 0
        while source and len(picked) < self._most and size < MOST_BYTES:
            unit = source.popleft()
            task = unit.outcome.task
            if not task.lane.open:
                self._let_go(unit)
                continue
            if source is self._gathered:
                self._committer.settled(task.lane, task.record.offset)
            picked.append(unit)
            size += unit.size
        return picked

    def _take_in(self, ended: Ended, now: float) -> None:
        sent, self._sent = self._sent, None
        if sent is None:
            return
        if ended.committed:
            self._delay, self._most, self.expelled = REDO_SECONDS[0], MOST_UNITS, False
            self._committer.took(now - self._sent_at)
            self._committed(sent)
            return
        for lane, _, _ in sent.marks:
            lane.changed = True
        self._member = None  # the generation may be another by now; the leases are looked at again
        self._again.extendleft(reversed(sent.units))
        if ended.failure is not None:
            self._note_failure(ended.failure, sent, now)

    def _note_failure(self, failure: KafkaFailure, sent: _UnderWay, now: float) -> None:
        self._metrics.add("transactions_aborted_total", label=failure.code)
        log.warning("transaction.aborted", code=failure.code, reason=failure.message, answers=len(sent.units))
        self.expelled = failure.code in _EXPELLED
        if failure.code == _TOO_LARGE:
            self._make_smaller(sent.units)
        else:
            self._not_before, self._delay = now + self._delay, min(REDO_SECONDS[1], self._delay * 2)

    def _make_smaller(self, units: list[Unit]) -> None:
        """One of them is too large for its topic: find out which, one by one, and send something smaller for it."""
        self._most = 1
        if len(units) == 1:
            unit = self._again.popleft()
            self.outstanding_bytes -= len(unit.outcome.result)
            self._again.appendleft(self._units.smaller(unit))

    # -- what became of it

    def _committed(self, sent: _UnderWay) -> None:
        self._committer.confirm(sent.marks)
        now_ns = time.time_ns()
        for name in dict.fromkeys([unit.name for unit in sent.units]):
            outcomes = [unit.outcome for unit in sent.units if unit.name == name]
            self._metrics.add("tasks_total", len(outcomes), label=name)
            if name == "DEAD_LETTERED":
                self._metrics.add("dead_letters_total", len(outcomes))
            self._metrics.observe("settle_seconds", ages(outcomes, now_ns))
            self._tasklog.finished(outcomes, name, now_ns)
        for unit in sent.units:
            self._forget(unit)
        self.answered += len(sent.units)

    def _let_go(self, unit: Unit) -> None:
        self._forget(unit)
        self._metrics.add("dropped_total")

    def _forget(self, unit: Unit) -> None:
        task = unit.outcome.task
        task.lane.unconfirmed -= 1
        self.outstanding -= 1
        self.outstanding_bytes -= task.size + len(unit.outcome.result)
