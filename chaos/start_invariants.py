"""Invariants of handler starts: their number, their order, and never two of an ordering group at a time."""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from chaos import requests
from chaos.evidence import AT_ONCE
from chaos.fault_windows import explained, windows
from chaos.violation import Violation, violation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from chaos.evidence import Evidence, FaultWindow, JournalEntry, RecordId


def starts_belong(evidence: Evidence) -> Iterator[Violation]:
    """Check that a second start follows only a failure or a fault, never at-most-once. Malformed ones never start."""
    starts = evidence.starts
    malformed = [r for r in starts if r in evidence.sent and evidence.sent[r].kind in requests.MALFORMED]
    yield from violation_of("starts", "malformed, and started", malformed)
    if evidence.options.guarantee == "at-most-once":
        yield from violation_of("starts", "started more than once", [r for r, s in starts.items() if len(s) > 1])
        return
    finishes, found, unexplained = evidence.finishes, windows(evidence), set()
    crashed = evidence.crashed if "isolation" in evidence.options.uses else frozenset()
    for record, entries in starts.items():
        for one, other in itertools.pairwise(entries):
            failed = one in crashed or (one in finishes and finishes[one].event == "raise")
            if not failed and not _explained(one, other, found):
                unexplained.add(record)
    yield from violation_of("starts", "started again without a failure, and no fault explains it", unexplained)


def attempts_limited(evidence: Evidence) -> Iterator[Violation]:
    """Check that no request starts more often than ``WORKER_MAX_ATTEMPTS`` without a good finish.

    The last start in a process may stay uncounted (see ``_uncounted``), and so may one start of a request that crashed
    its process at once.
    """
    once = evidence.options.guarantee == "at-most-once"
    limit = 1 if once else evidence.options.max_attempts
    numbered = {entry.record for entry in evidence.journal if entry.event == "start" and entry.attempt > limit}
    yield from violation_of("attempts", f"an attempt numbered above {limit}", numbered)
    uncounted, at_once = (frozenset(), frozenset()) if once else (_uncounted(evidence), evidence.crashed_at_once)
    counted = Counter(one.record for one in evidence.bad_starts if one not in uncounted)
    bad = {record for record, count in counted.items() if count - (record in at_once) > limit}
    yield from violation_of("attempts", f"more than {limit} starts without a good finish", bad)


def _uncounted(evidence: Evidence) -> frozenset[JournalEntry]:
    """Return the starts that no commit had to record, so that another process made them again under the same number.

    A failure needs a commit that succeeds, which takes longer while the group rebalances after a fault of any replica.
    A start needs one before it, unless a fault keeps its replica from committing.
    """
    found, finishes = windows(evidence), evidence.finishes
    blocks = [one for one in found if one.blocks]
    newest = {entry.pid: entry.time for entry in evidence.in_order}

    def may_be(one: JournalEntry) -> bool:
        if one not in finishes:
            return explained((one.time, one.time), {one.replica}, blocks)
        failed = finishes[one].time
        return newest[one.pid] - failed <= AT_ONCE or explained((failed, failed), (), found)

    return frozenset(one for one in evidence.repeated if may_be(one))


def _groups(evidence: Evidence) -> dict[object, list[JournalEntry]]:
    """Return the starts of each ordering group (a partition, or a key in it), in order of time.

    A key moves to another partition when partitions are added.
    """
    found: dict[object, list[JournalEntry]] = defaultdict(list)
    for entries in evidence.starts.values():
        for entry in entries:
            item = evidence.sent.get(entry.record)
            key = item.key if item and evidence.options.ordering == "key" else None
            group = entry.record[0], key
            found[group].append(entry)
    return {group: sorted(entries, key=lambda entry: entry.time) for group, entries in found.items()}


def order_kept(evidence: Evidence) -> Iterator[Violation]:
    """Check that first starts follow the offsets within the ordering group.

    With at-most-once, a member that was cut off still starts what it had committed, while the next owner continues
    behind it. Such a start is explained only if the worker reported it as lost *and* a fault hit that replica. The same
    applies to a request that the next owner has answered ``CANCELLED``, which needs no start.
    """
    if evidence.options.ordering == "unordered":
        return
    found, overtaken = windows(evidence), set()
    cancelled = {answer.record: answer.at for answer in evidence.answers if answer.outcome == "CANCELLED"}
    for entries in _groups(evidence).values():
        seen: set[RecordId] = set()
        last = (-1, -1)
        for entry in entries:
            if entry.record in seen or _zombie(evidence, entry, found, cancelled):
                continue
            seen.add(entry.record)
            if entry.record < last:
                overtaken.add(entry.record)
            last = max(last, entry.record)
    yield from violation_of("order", f"first started after a later one of its {evidence.options.ordering}", overtaken)


def _zombie(
    evidence: Evidence, entry: JournalEntry, found: list[FaultWindow], cancelled: Mapping[RecordId, float]
) -> bool:
    answered_at = cancelled.get(entry.record, math.inf)
    if answered_at < entry.time:
        return explained((answered_at, entry.time), {entry.replica}, found)
    reported = evidence.options.guarantee == "at-most-once" and entry.record in evidence.reported_lost
    return reported and explained((evidence.sent_at.get(entry.record, 0.0), entry.time), {entry.replica}, found)


def handlers_in_order(evidence: Evidence) -> Iterator[Violation]:
    """Check that handlers of an ordering group run one after another, unless a fault lies between two."""
    if evidence.options.ordering == "unordered":
        return
    found, finishes = windows(evidence), evidence.finishes
    overlapping, late = set(), set()
    for entries in _groups(evidence).values():
        ahead: JournalEntry | None = None  # the start with the greatest offset so far
        for one, other in itertools.pairwise([None, *entries]):
            if other is None:
                continue
            if one and _overlap(one, other, finishes) and not _explained(one, other, found):
                overlapping.add(other.record)
            behind = ahead and other.record < ahead.record
            if ahead and behind and not explained((_first(evidence, other), other.time), (), found):
                late.add(other.record)
            ahead = other if ahead is None or other.record > ahead.record else ahead
    yield from violation_of("handler order", "ran at the same time as another one of its group", overlapping)
    yield from violation_of("handler order", "started again after a later one of its group", late)


def _explained(one: JournalEntry, other: JournalEntry, found: list[FaultWindow]) -> bool:
    """Return whether a fault that lies between two starts hit the replica of either.

    The later start may be that of a process that was frozen or cut off, and does not know yet that it was replaced.
    """
    return explained((one.time, other.time), {one.replica, other.replica}, found)


def _first(evidence: Evidence, entry: JournalEntry) -> float:
    return evidence.sent_at.get(entry.record, entry.time)


def _overlap(one: JournalEntry, other: JournalEntry, finishes: Mapping[JournalEntry, JournalEntry]) -> bool:
    """Return whether the first handler was still running. The end is unknown if its process died."""
    return one in finishes and finishes[one].time > other.time
