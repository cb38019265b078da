"""The faults that explain a second start or a second answer. Pure.

A window belongs to the replicas that its fault hit: a replica's work is repeated only because *that* replica died,
froze, was cut off or was fenced, and a replica repeats another's work only because it froze or was cut off itself. The
window extends beyond the fault by one session time-out, because a fenced member runs until its next heartbeat, by a
second of reconnect back-off, and by two seconds for a small machine.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

from chaos.evidence import FaultWindow
from chaos.faults import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from chaos.evidence import Answer, Evidence, JournalEntry, Span

BEFORE = 0.1  # seconds: answers have milliseconds of the wall clock, faults have seconds of the monotonic one
RECONNECT = 1.0  # seconds: the longest reconnect back-off of the worker's clients
MARGIN = 2.0  # seconds


def unclean(injected: Iterable[tuple[str, str, float, float]]) -> list[FaultWindow]:
    """Return the windows of faults given as kind, replica ("" for all), begin and end. Clean faults have none."""
    return [
        FaultWindow(begin, end, frozenset({replica} if replica else ()), BY_NAME[kind].blocks)
        for kind, replica, begin, end in injected
        if not BY_NAME[kind].clean
    ]


def windows(evidence: Evidence) -> list[FaultWindow]:
    """Return the windows of all unclean faults and of all requests that ended their process, with their tails."""
    after = evidence.options.session + RECONNECT + MARGIN
    # In a child process, a request ends only its attempt.
    crashes = [] if "isolation" in evidence.options.uses else _crashes(evidence.journal)
    found = [*evidence.fault_windows, *crashes]
    return [one._replace(begin=one.begin - BEFORE, end=one.end + after) for one in found]


def _crashes(journal: Sequence[JournalEntry]) -> list[FaultWindow]:
    """Return a window for each crash entry, unless its process wrote more entries and thus survived."""
    last: dict[int, float] = defaultdict(float)
    for entry in journal:
        last[entry.pid] = max(last[entry.pid], entry.time)
    return [
        FaultWindow(entry.time, entry.time, frozenset({entry.replica}))
        for entry in journal
        if entry.event == "crash" and last[entry.pid] <= entry.time
    ]


def never_excused(evidence: Evidence) -> int:
    """Return how many requests were answered while no fault could have excused a second start or a second answer.

    That is so if no window of any replica overlaps the time from the submission to the last start and answer.
    """
    found, starts, answered = windows(evidence), evidence.starts, evidence.answered
    return sum(
        not explained((at, max(at, *_ends(starts.get(record, ()), answered[record]))), (), found)
        for record, at in evidence.sent_at.items()
        if record in answered
    )


def _ends(starts: Iterable[JournalEntry], answers: Iterable[Answer]) -> list[float]:
    return [*(one.time for one in starts), *(one.at for one in answers)]


def explained(span: Span, replicas: Collection[str], found: Sequence[FaultWindow]) -> bool:
    """Return whether a fault that hit one of these replicas overlaps the span. Without replicas, any fault counts."""
    begin, end = span
    return any(
        begin <= one.end and one.begin <= end and not (replicas and one.replicas and one.replicas.isdisjoint(replicas))
        for one in found
    )
