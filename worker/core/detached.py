"""The rules for detached tasks: tasks that run in one process while another process owns their partition.

The *holder* runs the task. The *owner* has the partition. Three things connect them:

- The commit metadata of the partition names the holder (``commit_metadata.Detached``). Every owner commits the entry
  again.
- A *mark* is an offset that the holder commits in a small group for this task only. It says that the task is settled or
  released.
- The group's members show whether the holder is alive. That decides when the owner acts, but correctness does not
  depend on it.

The request is answered once because each side writes before it reads. The holder first writes the mark, which is
pending in the transaction of the answer. Then it reads whether the metadata still names it, and only then commits. The
owner first commits that the task is *vacated*, until the holder can read that. Then it reads the mark in a way that
waits for pending ones. So one of them always sees what the other has written.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from worker.core.claim import Claim
from worker.core.commit_metadata import Detached, MetadataError, decode, gaps
from worker.core.task_state import Origin

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from worker.core.commit_metadata import CommitMetadata, Range
    from worker.core.lease import Lease
    from worker.core.model import Partition

T = TypeVar("T")

TOKEN_LENGTH = 8
MOST_MARKS = 12  # read in one round, because the client keeps a consumer for each
NEXT_MARKS = 4  # of those that were not read in the round before, because each of them takes a new consumer
ABSENT_SECONDS = 5.0  # between two views of the group, neither of which may show the holder
_A_TIME = 10**12  # milliseconds: earlier versions wrote when the next attempt may start, not a pause
_PREFIX = "kw1"
_SEPARATOR = "."
_HEXADECIMAL = frozenset("0123456789abcdef")


# -- identity


def client_id_of(name: str, token: str) -> str:
    """Return the client id of a process that understands detached tasks. Every process has a new token."""
    return f"{name}{_SEPARATOR}{token}"


def token_of(client_id: str) -> str:
    """Return the token in a client id; empty if there is none, as in older versions."""
    token = client_id.rpartition(_SEPARATOR)[2]
    return token if len(token) == TOKEN_LENGTH and set(token) <= _HEXADECIMAL else ""


def holder_of(token: str, number: int) -> str:
    """Return the name of this process in commit metadata as holder of detached task ``number``. It is never reused."""
    return f"{token}{number:x}"


class DetachedClaim(Claim):
    """The claim on one detached task. It outlives the lease under which the task started.

    The responder sets ``delivered`` when the answer is confirmed, and ends the claim if another process took the task
    over.
    """

    __slots__ = ("delivered", "holder", "lease", "offset", "task_attempt")

    def __init__(self, lease: Lease, offset: int, attempt: int, holder: str) -> None:
        super().__init__()
        self.lease = lease
        self.offset = offset
        self.task_attempt = attempt
        self.holder = holder
        self.delivered = False

    @property
    def partition(self) -> Partition:
        """Return the partition of the request."""
        return self.lease.partition

    @property
    def origin(self) -> Origin:
        """Return the origin of the request."""
        return Origin.of(self.lease.partition, self.offset)

    def is_named_by(self, committed: tuple[int, str] | None) -> bool:
        """Return whether the group's committed offset and metadata still name this holder."""
        return entry_of(self.offset, committed) == Detached(self.task_attempt, self.holder)


def entry_of(offset: int, committed: tuple[int, str] | None) -> Detached | None:
    """Return what the group's committed offset and metadata say about a detached task; None if nothing."""
    if committed is None:
        return None
    try:
        return decode(committed[1], committed[0]).detached.get(offset)
    except MetadataError:
        return None


# -- marks


class MarkKind(enum.Enum):
    """What a mark means."""

    UNKNOWN = "unknown"  # no reply, or the transaction with the mark is not decided yet
    ABSENT = "absent"
    SETTLED = "settled"  # the request is answered
    RELEASED = "released"  # the holder will not answer it, and another attempt may start


class Mark(NamedTuple):
    """A mark. ``attempts`` were made so far; the next may start after a ``pause``, in seconds."""

    kind: MarkKind
    attempts: int = 0
    pause: float = 0.0


UNKNOWN = Mark(MarkKind.UNKNOWN)
ABSENT = Mark(MarkKind.ABSENT)


def mark_group(group: str, partition: Partition, offset: int, holder: str) -> str:
    """Return the name of the small group in which this holder commits its mark, in the partition of the task.

    Every holder of a task has its own group, so that a late write of a frozen holder does not replace its successor's
    mark.
    """
    return f"{group}.detached.{partition.topic}.{partition.number}.{offset}.{holder}"


def settled_mark(claim: DetachedClaim) -> tuple[int, str]:
    """Return the offset and the metadata of a mark that says that this holder has answered the request."""
    return claim.offset + 1, f"{_PREFIX} s{claim.task_attempt:x}.{claim.holder}"


def released_mark(claim: DetachedClaim, attempts: int, pause: float) -> tuple[int, str]:
    """Return the same for a mark that says that it will not answer.

    The owner waits for ``pause`` seconds when it has read the mark. A time would depend on the clocks of two machines.
    """
    return claim.offset, f"{_PREFIX} r{attempts:x}.{claim.holder}.{int(pause * 1000):x}"


def read_mark(task: Detached, committed: tuple[int, str] | None) -> Mark:
    """Return the mark of this detached task. A mark that another holder left earlier does not count."""
    prefix, _, text = committed[1].partition(" ") if committed is not None else ("", "", "")
    fields = text[1:].split(_SEPARATOR)
    if prefix != _PREFIX or len(fields) < 2 or fields[1] != task.holder:  # noqa: PLR2004 - attempts and holder
        return ABSENT
    try:
        if text.startswith("s"):
            return Mark(MarkKind.SETTLED, int(fields[0], 16))
        pause = int(fields[2], 16)
        return Mark(MarkKind.RELEASED, int(fields[0], 16), 0.0 if pause >= _A_TIME else pause / 1000)
    except (ValueError, IndexError):
        return UNKNOWN


# -- the owner


def in_turn(awaited: Sequence[T], number: int) -> Sequence[T]:
    """Return those of the awaited tasks whose marks are read in the round with this number."""
    if len(awaited) <= MOST_MARKS:
        return awaited
    first = number * NEXT_MARKS % len(awaited)
    return [*awaited[first:], *awaited[:first]][:MOST_MARKS]


class Step(enum.Enum):
    """The next action of the owner of a partition for a detached task."""

    WAIT = "wait"
    SETTLE = "settle"
    VACATE = "vacate"
    TAKE_OVER = "take over"


def next_step(task: Detached, mark: Mark, *, missing: bool, recorded: bool) -> Step:
    """Return the owner's next step.

    ``recorded`` means that this state of the task was known to be committed before the mark was read. ``missing`` means
    that the group has not shown the holder for long enough. Only a read after the vacating commit is decisive: the
    holder may still write after any earlier read.
    """
    if mark.kind is MarkKind.UNKNOWN:
        return Step.WAIT
    if mark.kind is MarkKind.SETTLED:
        return Step.SETTLE
    if mark.kind is MarkKind.RELEASED:
        return Step.TAKE_OVER
    if task.vacated:
        return Step.TAKE_OVER if recorded else Step.WAIT
    return Step.VACATE if missing else Step.WAIT


def lost(offset: int, left: CommitMetadata) -> list[Range]:
    """Return the requests below the committed offset that started and that no process will answer (at-most-once)."""
    if left.unanswered_from is None:
        return []
    known = sorted([*left.completed, *((at, at + 1) for at in left.detached)])
    return gaps(left.unanswered_from, offset, known)


def begin_with(offset: int, left: CommitMetadata) -> tuple[int, tuple[Range, ...]]:
    """Return the offset to read from, and the ranges above it that must not start, given the previous owner's commit.

    With at-most-once, detached tasks lie below the committed offset. Their records are read again, because other
    requests with the same key must not overtake them. No other request below that offset starts again.
    """
    below = [at for at in sorted(left.detached) if at < offset]
    if not below:
        return offset, left.completed
    over = gaps(below[0], offset, [(at, at + 1) for at in below])
    return below[0], (*over, *((max(first, offset), stop) for first, stop in left.completed if stop > offset))


class Absences:
    """The holders that are missing: two views of the group, ``ABSENT_SECONDS`` apart, did not show them.

    An error, a time-out or an empty group is no evidence. Only a view that also shows this process counts.
    """

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._looked_at = 0.0

    def look(self, tokens: Collection[str], watched: Iterable[str], now: float) -> None:
        """Record a valid view that shows these tokens. ``watched`` are the holders of interest."""
        self._looked_at = now
        missing = {holder[:TOKEN_LENGTH] for holder in watched} - set(tokens)
        self._since = {token: self._since.get(token, now) for token in missing}

    def is_missing(self, holder: str) -> bool:
        """Return whether the holder counts as gone."""
        since = self._since.get(holder[:TOKEN_LENGTH])
        return since is not None and self._looked_at - since >= ABSENT_SECONDS


# -- the group


class GroupView(NamedTuple):
    """One view of the group: the tokens of all members, and the tokens of members that have request partitions."""

    tokens: frozenset[str]
    workers: frozenset[str]

    def counts(self, token: str) -> bool:
        """Return whether this view is evidence for the process with this token, which it must show."""
        return token in self.tokens

    @property
    def is_idle(self) -> bool:
        """Return whether no member has a request partition, because all of them have given way."""
        return bool(self.tokens) and not self.workers

    def understands_detached(self, token: str) -> bool:
        """Return whether every member supports detached tasks. Members of older versions have no token."""
        return self.counts(token) and "" not in self.tokens

    def can_take_work(self, token: str, partitions: int) -> bool:
        """Return whether another member can take the partitions of a process that has ``partitions`` of them.

        A member without partitions may be busy with a long task itself, or there may be more members than partitions.
        """
        return bool(self.workers - {token}) or (partitions <= 1 < len(self.tokens))


def view_of(members: Iterable[tuple[str, Iterable[Partition]]], topics: Collection[str]) -> GroupView:
    """Build the view from the members' client ids and partitions. ``topics`` are the request topics."""
    tokens, workers = set(), set()
    for client_id, partitions in members:
        token = token_of(client_id)
        tokens.add(token)
        if any(partition.topic in topics for partition in partitions):
            workers.add(token)
    return GroupView(frozenset(tokens), frozenset(workers))
