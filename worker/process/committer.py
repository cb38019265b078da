"""Commits settled offsets and records which tasks may have started, only under a valid lease."""

from __future__ import annotations

import dataclasses
import itertools
import time
from typing import TYPE_CHECKING, NamedTuple, Protocol

import structlog

from worker.core import commit_metadata
from worker.core.commits import CommitPolicy
from worker.core.detached import DetachedClaim
from worker.kafka.ports import FENCED_CODES, MEMBERSHIP_CODES, KafkaFailure, Position

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from worker.core.claim import Claim
    from worker.core.commit_metadata import CommitMetadata
    from worker.core.model import Partition
    from worker.core.owned_partition import OwnedPartition
    from worker.process.shared import Shared

# A first start that waits longer for its commit goes ahead, because the coordinator must be unavailable. If the last
# commit was slow, it waits longer: failed tasks wait for their commits in any case, and others would overtake them all.
OVERDUE_SECONDS = 1.0
OVERDUE_COMMITS = 3  # times the last one
MAX_OVERDUE_SECONDS = 10.0
QUIET_SECONDS = 1.0  # at most, without a new commit or transaction, for a caller that waits for the current one

log = structlog.get_logger("committer")


class Commit(NamedTuple):
    """The commit of one partition, with the starts and the metadata that it records."""

    owned: OwnedPartition
    position: Position
    start_limit: int
    restarts: Mapping[int, int]
    recorded: CommitMetadata


class CommitChannel(Protocol):
    """How commits are sent: by the consumer, or in transactions."""

    def commit(self, positions: Mapping[Partition, Position]) -> None:
        """Send a commit. The reply arrives through ``CommitListener.committed``."""

    def coordinator_answers(self) -> bool:
        """Return whether a commit without a reply is lost, because the coordinator replies to later requests."""


class Committer:
    """Sends one asynchronous commit at a time and handles the replies (``CommitListener``). Used on the poll thread.

    While ``responder_is_busy()``, a transaction is under way or has to be repeated. Its offsets must not be committed
    without it, and the broker might mistake a commit beside it for the later one.
    """

    def __init__(self, shared: Shared, channel: CommitChannel) -> None:
        config = shared.config
        self.leaving = False  # no task starts any more: commits record that none is running
        self.fenced = False  # the last commit failed because the group does not know this member
        self.round_trip = 0.002  # seconds from a commit to its reply, as a running mean
        self._overdue_after = OVERDUE_SECONDS
        self._guarantee = shared.guarantee
        self._token = shared.token
        self._channel = channel
        self._assignment = shared.assignment
        self._metrics = shared.metrics
        self._clock = shared.clock
        every = 1 if shared.guarantee.transactional else config.commit_every  # transactions have their own rhythm
        self._policy = CommitPolicy(shared.clock(), every=every, interval=config.commit_interval)
        self._sent_at = 0.0
        self._waiting_since: float | None = None  # when a start was requested that no commit has recorded yet
        self._refused = False  # the group did not accept the last commit, but the broker is there
        self._under_way: dict[Partition, Commit] = {}
        self._quiet_until = 0.0
        self._transaction_ids = itertools.count(time.time_ns() // 1000)

    # -- what to commit

    def settled(self, claim: Claim, partition: Partition, *offsets: int) -> None:
        """Record that the answers to ``offsets`` are confirmed. After the end of the claim they are only counted."""
        if isinstance(claim, DetachedClaim):
            claim.delivered = True  # the owner settles it once there is a mark
            return
        owned = self._assignment.partitions.get(partition)
        if owned is None or owned.lease is not claim:
            self._metrics.add("dropped_total", len(offsets))
            return
        owned.answered(*offsets)
        self._policy.settled(self._clock(), len(offsets))

    def prepare(self, owned: OwnedPartition, *, clean: bool) -> Commit:
        """Return the commit to send for a partition now. If ``clean``, none of its tasks is running any more."""
        # So that the committed metadata show how a transaction ended: see ``was_committed``.
        transaction_id = f"{next(self._transaction_ids):x}" if self._guarantee.transactional else ""
        position, recorded = self._position(owned, clean=clean, transaction_id=transaction_id)
        owned.recorded(len(position.metadata))
        owned.changed = False
        return Commit(owned, position, owned.starts.requested, owned.starts.restarts, recorded)

    def _position(
        self, owned: OwnedPartition, *, clean: bool, transaction_id: str = ""
    ) -> tuple[Position, CommitMetadata]:
        recorded = owned.metadata(clean=clean, process=self._token, transaction_id=transaction_id)
        offset = owned.position
        if self._guarantee.starts_once:
            offset = _behind_starts(owned, recorded)
            recorded = dataclasses.replace(recorded, started_below=None, unanswered_from=owned.position)
        text = commit_metadata.encode(recorded, offset)
        if len(text) > commit_metadata.LIMIT:
            recorded = dataclasses.replace(recorded, errors={})  # only for display
            text = commit_metadata.encode(recorded, offset)
        while len(text) > commit_metadata.LIMIT:
            if self._guarantee.transactional:
                message = f"{owned.partition}: {len(text)} characters of commit metadata do not fit beside an offset"
                raise RuntimeError(message)
            # Starts that were not recorded are only repeated after a crash.
            kept = recorded.completed[: len(recorded.completed) * 3 // 4]
            recorded = dataclasses.replace(recorded, completed=kept, attempts={}, waiting=frozenset())
            text = commit_metadata.encode(recorded, offset)
        return Position(offset, text), recorded

    def is_clean(self, owned: OwnedPartition) -> bool:
        """Return whether everything is committed that the next owner of an idle partition has to know."""
        if not owned.has_position:
            return True
        if owned.committed is None or owned.committing:
            return False
        # With the same number, because a long text has less room for the rest beside it.
        transaction_id = commit_metadata.transaction_id_of(owned.committed[1])
        return self._position(owned, clean=True, transaction_id=transaction_id)[0] == owned.committed

    @property
    def pending(self) -> bool:
        """Return whether something settled may still have to be committed."""
        if any(one.owned.lease.valid for one in self._under_way.values()):
            return True
        return any(owned.changed for owned in self._assignment) or any(self._unclean())

    @property
    def in_flight(self) -> bool:
        """Return whether a commit is under way."""
        return self._policy.in_flight

    def quiesce(self) -> bool:
        """Return whether no commit is under way. If one is, send no other for a moment, for a caller that waits."""
        self._quiet_until = self._clock() + QUIET_SECONDS if self.in_flight else 0.0
        return not self.in_flight

    # -- commits

    def tick(self, now: float, *, responder_is_busy: bool) -> None:
        """Send a commit if one is due."""
        if self._policy.overdue(now):
            self._give_up_waiting(now)
        starts_wait = self._assignment.waits_for_commit
        self._waiting_since = (self._waiting_since or now) if starts_wait and not self._refused else None
        if responder_is_busy or now < self._quiet_until:
            return
        changed = any(owned.changed for owned in self._assignment)
        holding = any(owned.lease.leaving for owned in self._assignment)
        hurry = self.leaving or holding
        urgent = starts_wait or any(owned.room.full and owned.changed for owned in self._assignment)
        if (changed and self._policy.due(now, hurry=hurry)) or (urgent and self._policy.urgent(now)):
            self._send(list(self._of_changed()), now)
        elif hurry and self._policy.due(now, hurry=True) and (unclean := list(self._unclean())):
            self._send([self.prepare(owned, clean=True) for owned in unclean], now)
        elif self._policy.keep_alive_due(now, holding=holding):
            self._send([self.prepare(owned, clean=False) for owned in self._assignment if owned.has_position], now)

    def commit_clean(self, now: float) -> None:
        """Record that no task runs, although one does: it is given up, and its attempt does not count."""
        self._send([self.prepare(owned, clean=True) for owned in self._assignment if owned.has_position], now)

    def measured(self, seconds: float) -> None:
        """Record the duration of a commit or a transaction."""
        self.round_trip += (min(seconds, 1.0) - self.round_trip) / 8
        self._overdue_after = min(max(OVERDUE_SECONDS, OVERDUE_COMMITS * seconds), MAX_OVERDUE_SECONDS)

    def starts_are_overdue(self, now: float) -> bool:
        """Return whether starts have waited for a commit longer than an available broker ever takes."""
        return self._waiting_since is not None and now - self._waiting_since > self._overdue_after

    def failed(self, failure: KafkaFailure) -> None:
        """Record why a commit or a transaction failed. Starts wait on if the group did not accept this member."""
        self._refused = failure.code in MEMBERSHIP_CODES

    def confirm(self, commits: Iterable[Commit]) -> None:
        """Record that these positions are committed."""
        self._metrics.add("commits_total")
        self._waiting_since = None
        self._refused = self.fenced = False
        for owned, position, start_limit, restarts, recorded in commits:
            owned.confirm(position, start_limit, restarts, recorded)

    def _of_changed(self) -> Iterator[Commit]:
        for owned in self._assignment:
            last = (self.leaving or owned.lease.leaving) and owned.at_rest
            changed = owned.changed or owned.starts.outstanding or (last and not self.is_clean(owned))
            if owned.has_position and changed:
                yield self.prepare(owned, clean=last)

    def _unclean(self) -> Iterator[OwnedPartition]:
        """Yield the idle partitions whose next owner would still suspect a task."""
        for owned in self._assignment:
            if (self.leaving or owned.lease.leaving) and owned.at_rest and not self.is_clean(owned):
                yield owned

    def _send(self, commits: list[Commit], now: float) -> None:
        if not commits:
            return
        self._policy.sent(now)
        self._sent_at = now
        self._under_way = {one.owned.partition: one for one in commits}
        self._channel.commit({partition: one.position for partition, one in self._under_way.items()})

    # -- replies

    def committed(self, positions: Mapping[Partition, Position], failure: KafkaFailure | None) -> None:
        """See ``CommitListener``. The reply to a commit that was given up is ignored."""
        commits = [one for partition, one in self._under_way.items() if positions.get(partition) == one.position]
        if positions and not commits:
            return
        self.measured(self._clock() - self._sent_at)
        self._end(commits, failure)

    def _end(self, commits: list[Commit], failure: KafkaFailure | None) -> None:
        self._policy.answered(self._clock(), failed=failure is not None)
        self._under_way.clear()
        if failure is None:
            self.confirm(commits)
            return
        self.failed(failure)
        self.fenced = failure.code in FENCED_CODES
        self._metrics.add("commit_failures_total", label=failure.code)
        log.warning("commit.failed", code=failure.code, reason=failure.message)
        for one in commits:
            one.owned.changed = True

    def _give_up_waiting(self, now: float) -> None:
        """Count a commit as failed if it has had no reply for a long time and the coordinator is available.

        A reply to a later request on the same connection shows that the commit is no longer under way.
        """
        if not self._channel.coordinator_answers():
            self._policy.wait_longer(now)
            return
        lost = list(self._under_way.values())
        self._end(lost, KafkaFailure("_TIMED_OUT", "the commit was never answered"))


def _behind_starts(owned: OwnedPartition, recorded: CommitMetadata) -> int:
    """Return an offset above every task that may have started, so that none of them starts again (at-most-once)."""
    offset = owned.lowest_here if owned.detached else owned.position
    return max(owned.floor, offset, recorded.started_below or 0)
