"""Commits what is settled and notes what may have been started, under a valid lease only."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, NamedTuple

import structlog

from worker.core import notes
from worker.core.commits import CommitPolicy
from worker.kafka.ports import Position

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from worker.core.assignment import Assignment
    from worker.core.lane import Lane
    from worker.core.model import Partition
    from worker.kafka.ports import Consumer, KafkaFailure
    from worker.metrics import Metrics
    from worker.process.config import ProcessConfig

PERMIT_SECONDS = 1.0

log = structlog.get_logger("committer")


class Sent(NamedTuple):
    """A commit of one lane under way: what it says, and the permit it brings."""

    lane: Lane
    position: Position
    permit: int


class Committer:
    """Asynchronous while polling, synchronous inside a rebalance, one at a time. Poll thread.

    ``busy()`` says that a transaction is under way or to be repeated: what it settles is not to be committed without
    it, and the broker might take a commit beside it for the later one.
    """

    def __init__(
        self,
        config: ProcessConfig,
        consumer: Consumer,
        assignment: Assignment,
        metrics: Metrics,
        clock: Callable[[], float],
    ) -> None:
        self.busy: Callable[[], bool] = lambda: False
        self.leaving = False  # nothing more is started: what is not under way is left in good order
        self._consumer = consumer
        self._assignment = assignment
        self._metrics = metrics
        self._clock = clock
        self._at_most_once = config.guarantee == "at-most-once"
        self._exact = config.guarantee == "exactly-once"
        self._sync = config.commit_mode == "sync"
        every = 1 if self._exact else config.commit_every  # transactions have their own rhythm
        self._policy = CommitPolicy(clock(), every=every, interval=config.commit_interval)
        self.round_trip = 0.002  # seconds from a commit to its answer, a running mean
        self._sent_at = 0.0
        self._settled = 0  # since the policy was told
        self._hungry_since: float | None = None  # when a permit was asked for, and none has come since
        self._under_way: dict[Partition, Sent] = {}

    # -- what is to be committed

    def settled(self, lane: Lane, *offsets: int) -> None:
        """The answers to ``offsets`` are certain. After the end of its lease that is only counted."""
        if lane.open:
            lane.settle(*offsets)
            self._settled += len(offsets)
        else:
            self._metrics.add("dropped_total", len(offsets))

    def position(self, lane: Lane, *, working: bool, serial: str = "") -> Position:
        """What to commit for a lane now; ``working``: what it has permits for is still under way."""
        noted, offset = lane.notes(working=working, serial=serial), lane.position
        if self._at_most_once and noted.working is not None:
            offset, noted = noted.working, dataclasses.replace(noted, working=None, started=offset)
        text = notes.encode(noted, offset)
        while len(text) > notes.LIMIT:
            if self._exact:
                message = f"{lane.partition}: {len(text)} characters of notes do not fit beside an offset"
                raise RuntimeError(message)
            # What is not noted is done again after a crash, and nothing else.
            noted = dataclasses.replace(noted, done=noted.done[: len(noted.done) * 3 // 4], attempts={})
            text = notes.encode(noted, offset)
        lane.note(len(text))
        return Position(offset, text)

    @property
    def pending(self) -> bool:
        """Whether something settled is not known to be committed, and may yet be."""
        if any(sent.lane.open for sent in self._under_way.values()) or any(lane.changed for lane in self._lanes()):
            return True
        return self.leaving and any(self._unclean())

    @property
    def in_flight(self) -> bool:
        """Whether a commit is under way."""
        return self._policy.in_flight

    # -- commits

    def tick(self, now: float) -> None:
        """Send a commit if one is due."""
        if self._settled:
            self._policy.settled(now, self._settled)
            self._settled = 0
        hungry = any(lane.wish > lane.permit for lane in self._lanes())
        self._hungry_since = (self._hungry_since or now) if hungry else None
        if self.busy():
            return
        due = self._policy.due(now, hurry=self.leaving) and any(lane.changed for lane in self._lanes())
        pressed = any(lane.pressed and lane.changed for lane in self._lanes())
        if due or ((hungry or pressed) and self._policy.urgent(now)):
            self._send(self._of(self._lanes()), now)
        elif self.leaving and self._policy.due(now, hurry=True) and (unclean := list(self._unclean())):
            self._send(unclean, now)
        elif self._policy.keep_alive_due(now):
            self._send([self._sent(lane, working=True) for lane in self._lanes() if lane.known], now)

    def took(self, seconds: float) -> None:
        """So long did it take from a commit, or a transaction, to its answer."""
        self.round_trip += (min(seconds, 1.0) - self.round_trip) / 8

    def overdue(self, now: float) -> bool:
        """Whether permits have been waited for longer than a broker that is there ever takes."""
        return self._hungry_since is not None and now - self._hungry_since > PERMIT_SECONDS

    def confirm(self, commits: Iterable[Sent]) -> None:
        """These positions are committed."""
        self._metrics.add("commits_total")
        self._hungry_since = None
        for lane, position, permit in commits:
            lane.confirm(position, permit)

    def _of(self, lanes: Iterable[Lane]) -> list[Sent]:
        return [
            self._sent(lane, working=True)
            for lane in lanes
            if lane.open and lane.known and (lane.changed or lane.wish > lane.permit)
        ]

    def _unclean(self) -> Iterator[Sent]:
        """What is left to tell the next owners when nothing more is started."""
        for lane in self._lanes():
            if lane.known and not lane.busy:
                sent = Sent(lane, self.position(lane, working=False), lane.wish)
                if sent.position != lane.confirmed:
                    yield sent

    def _sent(self, lane: Lane, *, working: bool) -> Sent:
        lane.changed = False
        return Sent(lane, self.position(lane, working=working), lane.wish)

    def _send(self, commits: list[Sent], now: float) -> None:
        if not commits:
            return
        self._policy.sent(now)
        self._sent_at = now
        self._under_way = {sent.lane.partition: sent for sent in commits}
        positions = {partition: sent.position for partition, sent in self._under_way.items()}
        if self._sync:
            self.answered(positions, self._consumer.commit_now(positions))
        else:
            self._consumer.commit(positions)

    def commit_now(self, lanes: Iterable[Lane], *, working: bool) -> None:
        """Commit these lanes and wait for it: for callbacks, in which no other answer could arrive.

        Without ``working`` they are left in good order: the next owner has nothing to suspect. A commit under way is
        overtaken: its answer would not be heard here, it may be a failure, and a transaction must not run beside it.
        """
        if self.busy():
            return
        commits = []
        for lane in lanes:
            overtaken = self._under_way.pop(lane.partition, None) is not None
            if lane.open and lane.known:
                # At most once: what cannot be known to be unstarted must not be left to the next owner.
                sent = self._sent(lane, working=working or (self._at_most_once and lane.busy))
                if overtaken or sent.position != lane.confirmed:
                    commits.append(sent)
        failure = None
        if commits:
            failure = self._consumer.commit_now({sent.lane.partition: sent.position for sent in commits})
            self._count(commits, failure)
        if self._policy.in_flight and not any(sent.lane.open for sent in self._under_way.values()):
            self._under_way.clear()
            self._policy.answered(self._clock(), failed=failure is not None)

    def answered(self, positions: Mapping[Partition, Position], failure: KafkaFailure | None) -> None:
        """The answer to an asynchronous commit; one that was overtaken by ``commit_now`` says nothing any more."""
        commits = [sent for partition, sent in self._under_way.items() if positions.get(partition) == sent.position]
        if positions and not commits:
            return
        self.took(self._clock() - self._sent_at)
        self._policy.answered(self._clock(), failed=failure is not None)
        self._under_way.clear()
        self._count(commits, failure)

    def _count(self, commits: Iterable[Sent], failure: KafkaFailure | None) -> None:
        if failure is None:
            self.confirm(commits)
            return
        self._metrics.add("commit_failures_total", label=failure.code)
        log.warning("commit.failed", code=failure.code, reason=failure.message)
        for sent in commits:
            sent.lane.changed = True

    def _lanes(self) -> Iterable[Lane]:
        return self._assignment.lanes.values()
