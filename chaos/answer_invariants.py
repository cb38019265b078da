"""Invariants of answers and dead letters."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from chaos import requests
from chaos.fault_windows import explained, windows
from chaos.violation import Violation, violation_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from chaos.evidence import Evidence, RecordId
    from chaos.requests import Item

FOREVER = float("inf")


def unanswered(evidence: Evidence) -> list[RecordId]:
    """Return the requests without an answer. Only at-most-once may leave any."""
    answered = evidence.answered
    return sorted(record for record in evidence.sent if record not in answered)


def answered_twice(evidence: Evidence) -> list[RecordId]:
    """Return the requests with more than one answer."""
    return sorted(record for record, answers in evidence.answered.items() if len(answers) > 1)


def nothing_lost(evidence: Evidence) -> Iterator[Violation]:
    """Check that every request has an answer or, with at-most-once, a start or a fault that explains the loss."""
    if evidence.options.guarantee == "at-most-once":
        yield from _lost_at_most_once(evidence)
    else:
        yield from violation_of("lost", "not answered", unanswered(evidence))


def _lost_at_most_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that the worker reported each loss. The report counts only if the suite injected a fault."""
    starts, found = evidence.starts, windows(evidence)
    missing = [record for record in unanswered(evidence) if record not in starts]
    silent = [record for record in missing if record not in evidence.reported_lost]
    yield from violation_of("lost", "neither answered nor started nor reported", silent)
    unexplained = [r for r in missing if not explained((evidence.sent_at.get(r, 0.0), FOREVER), (), found)]
    yield from violation_of("lost", "never started, and no fault explains it", unexplained)
    answered = evidence.answered
    normal = requests.DEAD_LETTERED | requests.EXPIRING
    contradictory = [
        record
        for record in evidence.reported_lost & evidence.sent.keys()
        if record in answered
        and record not in starts
        and evidence.sent[record].kind not in normal
        and not (record in evidence.cancelled and {one.outcome for one in answered[record]} == {"CANCELLED"})
    ]
    yield from violation_of("lost", "reported as lost, and answered without a start", contradictory)


def answered_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that no request has two committed answers. At-least-once allows it with a fault in between.

    With an offset store, answers are at-least-once under every guarantee, because the rows are exactly-once.
    """
    twice = answered_twice(evidence)
    if evidence.options.guarantee != "at-least-once" and not evidence.options.store:
        yield from violation_of("duplicate", "answered more than once", twice)
        return
    found, starts, answered = windows(evidence), evidence.starts, evidence.answered
    unexplained = []
    for record in twice:
        seen = [(answer.at, answer.replica) for answer in answered[record]]
        seen += [(entry.time, entry.replica) for entry in starts.get(record, ())]
        span = min(seen)[0], max(answer.at for answer in answered[record])
        if not explained(span, {replica for _, replica in seen}, found):
            unexplained.append(record)
    yield from violation_of("duplicate", "answered more than once, and no fault explains it", unexplained)


def answers_belong(evidence: Evidence) -> Iterator[Violation]:
    """Check that every answer belongs to a request that was sent, with its key, sequence and a possible outcome."""
    known = evidence.sent.keys() | _resent_records(evidence)
    unknown = {a.record for a in evidence.answers if a.topic != evidence.topic or a.record not in known}
    yield from violation_of("origin", "answers to requests that were never sent", unknown)
    wrong, possible = defaultdict(set), _outcomes(evidence)
    for answer in evidence.answers:
        item = evidence.sent.get(answer.record)
        if item is None:
            continue
        if answer.outcome not in possible[answer.record]:
            wrong[f"{item.kind} answered {answer.outcome}"].add(answer.record)
        if (answer.key, answer.sequence) != _identity(item):
            wrong["wrong key or sequence"].add(answer.record)
    for text, records in wrong.items():
        yield from violation_of("outcome", text, records)


def _outcomes(evidence: Evidence) -> dict[RecordId, frozenset[str]]:
    """Return the possible outcomes of each request. One that has used up its attempts may be a dead letter."""
    options, bad = evidence.options, Counter(one.record for one in evidence.bad_starts)
    isolated = "isolation" in options.uses
    limit = 1 if isolated and options.guarantee == "at-most-once" else options.max_attempts
    return {
        record: requests.expected(item, options.guarantee, isolated=isolated)
        | ({"DEAD_LETTERED"} if bad[record] >= limit else set())
        | ({"CANCELLED"} if record in evidence.cancelled else set())
        for record, item in evidence.sent.items()
    }


def _identity(item: Item) -> tuple[bytes, int]:
    """Return key and sequence of the answer to a request. Bytes that are not a ``Request`` have no sequence."""
    return item.key, 0 if item.kind in requests.MALFORMED else item.sequence


def _resent_records(evidence: Evidence) -> set[RecordId]:
    """Return the second copies of requests whose delivery failed for the sender although the broker stored them."""
    resent = {_identity(item) for item in evidence.resent}
    return {a.record for a in evidence.answers if a.record not in evidence.sent and (a.key, a.sequence) in resent}


def dead_letters_belong(evidence: Evidence) -> Iterator[Violation]:
    """Check that exactly the expected requests became dead letters, with the same bytes."""
    sent, possible = evidence.sent, _outcomes(evidence)
    counts = Counter(dead_letter.record for dead_letter in evidence.dead_letters)
    answered = {answer.record for answer in evidence.answers if answer.outcome == "DEAD_LETTERED"}
    yield from violation_of("dead letters", "answered DEAD_LETTERED without a dead letter", answered - counts.keys())
    may = {record for record, outcomes in possible.items() if "DEAD_LETTERED" in outcomes}
    innocent = counts.keys() - may - _resent_records(evidence)
    yield from violation_of("dead letters", "dead letters of requests that could succeed", innocent)
    if evidence.options.guarantee == "exactly-once" and not evidence.options.store:
        twice = [record for record, count in counts.items() if count > 1]
        yield from violation_of("dead letters", "more than one dead letter", twice)
    changed = {
        one.record
        for one in evidence.dead_letters
        if (item := sent.get(one.record)) and (one.key, one.value) != (item.key, item.value)
    }
    yield from violation_of("dead letters", "not the original's bytes", changed)


def effects_once(evidence: Evidence) -> Iterator[Violation]:
    """Check that every request answered OK has one effect in the store, and that no other request has any."""
    if evidence.effects is None:
        return
    good = {answer.record for answer in evidence.answers if answer.outcome == "OK"}
    effects = evidence.effects
    yield from violation_of("effects", "answered OK without an effect", good - effects.keys())
    yield from violation_of("effects", "an effect without an OK answer", effects.keys() - good)
    twice = [record for record, count in effects.items() if count > 1]
    yield from violation_of("effects", "more than one effect", twice)
