"""Invariants of features: checkpoints, cancel requests, and follow-up requests."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from chaos.fault_windows import explained, windows
from chaos.violation import violation_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.evidence import Evidence, JournalEntry, RecordId, StateRecord
    from chaos.violation import Violation

CONFIRMED = 1.0  # seconds: the next start must see a checkpoint of this age
REACH = 5.0  # seconds in which a cancel request must reach a waiting request


def checkpoints_kept(evidence: Evidence) -> Iterator[Violation]:
    """Check that a start resumes from the last checkpoint that the broker had, never from one that was not saved."""
    resumes = [entry for entry in evidence.journal if entry.event == "resume"]
    states = _states(evidence)
    back = {one.record for one in resumes if one.step < _confirmed(states[one.record], one.time - CONFIRMED)}
    yield from violation_of("checkpoints", "went on from before its last confirmed checkpoint", back)
    yield from violation_of("checkpoints", "went on from a checkpoint that nobody made", _invented(evidence, resumes))


def _states(evidence: Evidence) -> dict[RecordId, list[StateRecord]]:
    found: dict[RecordId, list[StateRecord]] = defaultdict(list)
    for one in evidence.states:
        if not one.cancel:
            found[one.record].append(one)
    return found


def _confirmed(records: Sequence[StateRecord], before: float) -> int:
    """Return the checkpoint that was valid at that time. Records of an earlier start after a later one do not count."""
    start, step = (0, 0), 0
    for one in records:
        if one.at >= before:
            break
        if one.removed:
            start, step = (0, 0), 0
        elif one.start >= start:
            start, step = one.start, one.step
    return step


def _invented(evidence: Evidence, resumes: Sequence[JournalEntry]) -> set[RecordId]:
    made: dict[RecordId, int] = defaultdict(int)
    found = set()
    for one in evidence.in_order:
        if one.event == "checkpoint":
            made[one.record] = max(made[one.record], one.step)
        elif one.event == "resume" and one.step > made[one.record] + 1:  # its process may die before it journals it
            found.add(one.record)
    return found if resumes else set()


def cancelled_in_time(evidence: Evidence) -> Iterator[Violation]:
    """Check that a request does not start long after its cancel request, unless a fault lies between."""
    found, starts = windows(evidence), evidence.starts
    late = [
        record
        for record, at in evidence.cancelled.items()
        if record in starts
        and starts[record][0].time > at + REACH
        and not explained((at, starts[record][0].time), (), found)
    ]
    yield from violation_of("cancel", f"started more than {REACH:g} s after it was cancelled", late)


def client_resolves(evidence: Evidence) -> Iterator[Violation]:
    """Check that each future of the client resolves to a committed answer of its request, and by its id to the same.

    A search by id goes back to the time of the request. It need not find an answer that is dated hours before.
    """
    answered = evidence.answered
    hidden = {record for record, answers in answered.items() if all(answer.set_back for answer in answers)}
    for name, found, excused in (
        ("future", evidence.futures, frozenset()),
        ("search by its id", evidence.found_again, hidden),
    ):
        never = {record for record, one in found.items() if not one.outcome and record in answered} - excused
        yield from violation_of("client", f"answered, and its {name} finds nothing", never)
        early = {record for record, one in found.items() if one.outcome and record not in answered}
        yield from violation_of("client", f"its {name} finds an answer that is not committed", early)
        other = {
            record
            for record, one in found.items()
            if one.outcome and one.outcome not in {answer.outcome for answer in answered.get(record, ())}
        }
        yield from violation_of("client", f"its {name} finds something else than its answer", other - early)
        mixed = {record for record, one in found.items() if one.outcome == "OK" and one.value != one.wanted}
        yield from violation_of("client", f"its {name} finds the result of another request", mixed)


def follow_ups_belong(evidence: Evidence) -> Iterator[Violation]:
    """Check that each request answered OK has its follow-up request. Exactly-once: one, and no other has any."""
    if "follow-ups" not in evidence.options.uses:
        return
    counts = Counter(evidence.follow_ups.values())
    answered = {
        answer.record
        for answer in evidence.answers
        if answer.outcome == "OK" and (item := evidence.sent.get(answer.record)) and item.kind == "follow-up"
    }
    guarantee = evidence.options.guarantee
    if guarantee != "at-most-once":
        yield from violation_of("follow-ups", "answered OK without its follow-up request", answered - counts.keys())
    if guarantee == "exactly-once":
        yield from violation_of("follow-ups", "of a request that is not answered OK", counts.keys() - answered)
    several = [record for record, count in counts.items() if count > 1]
    if guarantee != "at-least-once":
        yield from violation_of("follow-ups", "more than one of a request", several)
        return
    found = windows(evidence)
    starts = evidence.starts
    unexplained = [
        record
        for record in several
        if not explained((starts[record][0].time, starts[record][-1].time), {starts[record][0].replica}, found)
    ]
    yield from violation_of("follow-ups", "more than one of a request, and no fault explains it", unexplained)
