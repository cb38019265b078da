"""The verdict: what was submitted against what came of it. Pure; each law is a function that yields its violations."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, NamedTuple

from chaos import load
from chaos.ledger import Mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from chaos.ledger import Evidence, Place, Span
    from chaos.load import Item

SESSIONS = 2.0  # after a crash or a fault, in session time-outs: so long may second starts still come of it
MARGIN = 5.0  # and so many seconds more: the machine is small
MOST_MEMORY = 200 * 2**20  # bytes of one worker process
MOST_GROWTH = 40 * 2**20  # from its first minute on
MOST_THREADS = 4  # more than it had
CLIENT_THREADS = 4, 2  # of one client more: its own, and for each broker
LOOKING = "rdk:bg"  # a thread that only the client has that looks at the group, now and then and one at a time
YOUNG = 10.0  # seconds in which a process may still grow
SET_UP = 6  # threads of a process that has its clients
LAST = 3  # samples
LONGEST_HOLD = 90.0  # seconds: the longest request, the longest outage, and a transaction that hangs


class Violation(NamedTuple):
    """A law that was broken, how, and by which requests."""

    law: str
    text: str
    places: tuple[Place, ...] = ()

    def __str__(self) -> str:
        shown = ", ".join(f"{partition}:{offset}" for partition, offset in self.places[:8])
        more = f" and {len(self.places) - 8} more" if len(self.places) > 8 else ""  # noqa: PLR2004 - as above
        return f"{self.law}: {self.text}{f' [{shown}{more}]' if shown else ''}"


def judge(evidence: Evidence) -> list[Violation]:
    """Every violation of every law."""
    return [violation for law in LAWS for violation in law(evidence)]


# -- answers


def nothing_lost(evidence: Evidence) -> Iterator[Violation]:
    """Every request has an answer; at most once: or was started, or was called lost by the program itself."""
    answered, starts = evidence.answered, evidence.starts
    missing = [place for place in evidence.sent if place not in answered]
    if evidence.options.guarantee == "at-most-once":
        missing = [place for place in missing if place not in starts and place not in evidence.told_lost]
        yield from _some("lost", "neither answered nor started nor told of", missing)
        malformed = [p for p in evidence.told_lost & evidence.sent.keys() if p in answered and p not in starts]
        yield from _some(
            "lost",
            "told to be lost and answered without a start",
            [p for p in malformed if evidence.sent[p].kind not in load.BURIED | load.EXPIRING],
        )
    else:
        yield from _some("lost", "not answered", missing)


def lost(evidence: Evidence) -> list[Place]:
    """The requests without an answer: only at most once may there be any."""
    answered = evidence.answered
    return sorted(place for place in evidence.sent if place not in answered)


def repeated(evidence: Evidence) -> list[Place]:
    """The requests answered more than once."""
    return sorted(place for place, answers in evidence.answered.items() if len(answers) > 1)


def answered_once(evidence: Evidence) -> Iterator[Violation]:
    """No second committed answer, unless at least once and a fault overlaps what lies between start and answer.

    With an offset store answers are at least once under exactly-once, too: it is the rows that are exact.
    """
    twice = repeated(evidence)
    if evidence.options.guarantee != "at-least-once" and not evidence.options.store:
        yield from _some("duplicate", "answered more than once", twice)
        return
    excuses, starts, answered = _excuses(evidence), evidence.starts, evidence.answered
    unexcused = []
    for place in twice:
        times = [answer.at for answer in answered[place]]
        begin = starts[place][0].time if place in starts else min(times)
        if not _overlaps((begin, max(times)), excuses):
            unexcused.append(place)
    yield from _some("duplicate", "answered more than once with no fault about", unexcused)


def answers_belong(evidence: Evidence) -> Iterator[Violation]:
    """Every answer is to a request that was sent, and says what it must."""
    known = evidence.sent.keys() | _sent_twice(evidence)
    strange = [a for a in evidence.answers if a.topic != evidence.topic or a.place not in known]
    yield from _some("origin", "answers to what was never asked", [answer.place for answer in strange])
    wrong = defaultdict(list)
    for answer in evidence.answers:
        item = evidence.sent.get(answer.place)
        if item is None:
            continue
        if answer.outcome not in load.expected(item, evidence.options.guarantee):
            wrong[f"{item.kind} answered {answer.outcome}"].append(answer.place)
        if (answer.key, answer.sequence) != _named(item):
            wrong["wrong key or sequence"].append(answer.place)
    for text, places in wrong.items():
        yield Violation("outcome", text, tuple(places))


def _named(item: Item) -> tuple[bytes, int]:
    """What the answer to a request names it by. What is no request has no sequence."""
    return item.key, 0 if item.kind in load.MALFORMED else item.sequence


def _sent_twice(evidence: Evidence) -> set[Place]:
    """Where requests stand that were called not sent, and were sent again: nobody was told of these."""
    again = {_named(item) for item in evidence.again}
    return {a.place for a in evidence.answers if a.place not in evidence.sent and (a.key, a.sequence) in again}


def letters_belong(evidence: Evidence) -> Iterator[Violation]:
    """Dead letters are those that had to be, byte for byte, and nothing else."""
    sent, counts = evidence.sent, Counter(letter.place for letter in evidence.letters)
    buried = {answer.place for answer in evidence.answers if answer.outcome == "DEAD_LETTERED"}
    yield from _some("letters", "answered DEAD_LETTERED without a letter", sorted(buried - counts.keys()))
    may = {p for p, item in sent.items() if "DEAD_LETTERED" in load.expected(item, evidence.options.guarantee)}
    yield from _some("letters", "dead letters that had not to be", sorted(counts.keys() - may - _sent_twice(evidence)))
    if evidence.options.guarantee == "exactly-once" and not evidence.options.store:
        yield from _some("letters", "more than one letter", [p for p, count in counts.items() if count > 1])
    changed = [
        letter.place
        for letter in evidence.letters
        if (item := sent.get(letter.place)) and (letter.key, letter.value) != (item.key, item.value)
    ]
    yield from _some("letters", "not the original's bytes", changed)


# -- starts


def starts_belong(evidence: Evidence) -> Iterator[Violation]:
    """At most once nothing starts twice; otherwise only after a fault or a failure. What is no request never starts."""
    starts = evidence.starts
    malformed = [p for p in starts if p in evidence.sent and evidence.sent[p].kind in load.MALFORMED]
    yield from _some("starts", "no request, and started", malformed)
    if evidence.options.guarantee == "at-most-once":
        yield from _some("starts", "started more than once", [p for p, s in starts.items() if len(s) > 1])
        return
    raised = {(mark.pid, mark.place, mark.attempt) for mark in evidence.marks if mark.event == "raise"}
    excuses, unexcused = _excuses(evidence), []
    for place, marks in starts.items():
        for one, other in itertools.pairwise(marks):
            failed = (one.pid, one.place, one.attempt) in raised
            if not failed and not _overlaps((one.time, other.time), excuses):
                unexcused.append(place)
    yield from _some("starts", "started again with no fault about", unexcused)


def order_kept(evidence: Evidence) -> Iterator[Violation]:
    """First starts are in the order of the offsets, within the partition or the key.

    What was called lost is let pass: a process cut off from the group still starts what it had permits for, while the
    next owner goes on behind that.
    """
    ordering = evidence.options.ordering
    if ordering == "unordered":
        return
    last: dict[object, Place] = {}
    firsts = sorted((marks[0] for marks in evidence.starts.values()), key=lambda mark: mark.time)
    overtaken = []
    for mark in firsts:
        if mark.place in evidence.told_lost:
            continue
        item = evidence.sent.get(mark.place)
        strand = mark.place[0] if ordering == "partition" else item and item.key
        if strand in last and last[strand] > mark.place:
            overtaken.append(mark.place)
        last[strand] = max(last.get(strand, mark.place), mark.place)
    yield from _some("order", f"first started after a later one of its {ordering}", overtaken)


# -- the rest


def all_committed(evidence: Evidence) -> Iterator[Violation]:
    """The group stands at the end of every partition."""
    for partition, end in sorted(evidence.ends.items()):
        if evidence.committed.get(partition) != end:
            yield Violation("commit", f"partition {partition}: {evidence.committed.get(partition)} instead of {end}")


def effects_once(evidence: Evidence) -> Iterator[Violation]:
    """In the store every request that was answered OK has one effect, and no other has any."""
    if evidence.effects is None:
        return
    good = {answer.place for answer in evidence.answers if answer.outcome == "OK"}
    effects = evidence.effects
    yield from _some("effects", "answered OK, no effect", sorted(good - effects.keys()))
    yield from _some("effects", "an effect, not answered OK", sorted(effects.keys() - good))
    yield from _some("effects", "more than one effect", [p for p, count in effects.items() if count > 1])


def ends_well(evidence: Evidence) -> Iterator[Violation]:
    """Replicas end as they should, nothing outlives them, and all else that was to happen has."""
    for one in evidence.exits:
        if one.code == 1 or (one.wanted and one.code != 0):
            yield Violation("exit", f"{one.replica} ended with exit code {one.code}")
    for process, seconds in evidence.holds:
        if seconds > LONGEST_HOLD:
            yield Violation("expectation", f"{process} held partitions for {seconds:.0f} s")
    for left in evidence.leftovers:
        yield Violation("leftover", left)
    for text in evidence.failed:
        yield Violation("expectation", text)


def memory_flat(evidence: Evidence) -> Iterator[Violation]:
    """No worker process takes much, or more and more, memory or threads."""
    own, each = CLIENT_THREADS
    client = own + each * evidence.options.brokers
    by_pid = defaultdict(list)
    for sample in evidence.samples:
        by_pid[sample.pid].append(sample)
    for pid, samples in by_pid.items():
        # Once its clients are there; and what is there for a moment only is a task's.
        grown = [
            sample for sample in samples if sample.time - samples[0].time >= YOUNG and sample.threads.total() >= SET_UP
        ]
        first, least = grown[:1], min((sample.pss for sample in samples[-LAST:]), default=0)
        if len(samples) >= LAST and least > MOST_MEMORY:
            yield Violation("memory", f"process {pid} has {least / 2**20:.0f} MB")
        if len(grown) > LAST and least - first[0].pss > MOST_GROWTH:
            yield Violation("memory", f"process {pid} grew by {(least - first[0].pss) / 2**20:.0f} MB")
        if grown:
            # A client that is replaced is there for some seconds yet.
            before, after = grown[0].threads, min((one.threads for one in grown[-LAST:]), key=Counter.total)
            # One whose call does not come back is left behind, and another takes its place.
            clients = evidence.hung + min(after[LOOKING], 1)
            if after.total() - before.total() > MOST_THREADS + client * clients:
                yield Violation("memory", f"process {pid} {_more_threads(before, after)}")


def _more_threads(before: Counter[str], after: Counter[str]) -> str:
    names = ", ".join(f"{count} {name}" for name, count in sorted((after - before).items()))
    return f"has {after.total()} threads instead of {before.total()}, more by {names}"


LAWS: tuple[Callable[[Evidence], Iterator[Violation]], ...] = (
    *(nothing_lost, answered_once, answers_belong, letters_belong, starts_belong, order_kept),
    *(all_committed, effects_once, ends_well, memory_flat),
)


def _some(law: str, text: str, places: Sequence[Place]) -> Iterator[Violation]:
    if places:
        yield Violation(law, f"{text}: {len(places)}", tuple(places))


def _excuses(evidence: Evidence) -> list[Span]:
    """When something was about that may lead to second starts: faults, and requests that end their process."""
    after = SESSIONS * evidence.options.session + MARGIN
    crashes = [(mark.time, mark.time) for mark in evidence.marks if mark.event == "crash"]
    return [(begin - 1.0, end + after) for begin, end in [*evidence.excuses, *crashes]]


def _overlaps(span: Span, others: Sequence[Span]) -> bool:
    return any(span[0] <= end and begin <= span[1] for begin, end in others)


__all__ = ["LAWS", "Mark", "Violation", "judge", "lost", "repeated"]
