"""Evidence of runs in which one thing is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from chaos.evidence import DeadLetter, Evidence, Exit, Sample
from tests.chaos.evidence import answer, entry

MEGABYTE = 2**20


def unanswered(e: Evidence) -> Evidence:
    return replace(e, answers=e.answers[1:])


def answered_twice(e: Evidence) -> Evidence:
    return replace(e, answers=[*e.answers, answer(1)])


def never_sent(e: Evidence) -> Evidence:
    return replace(e, answers=[*e.answers, answer(77)])


def of_another_topic(e: Evidence) -> Evidence:
    return replace(e, answers=[*e.answers[1:], e.answers[0]._replace(topic="other")])


def wrong_outcome(e: Evidence) -> Evidence:
    return replace(e, answers=[answer(0, "EXPIRED"), *e.answers[1:]])


def wrong_key(e: Evidence) -> Evidence:
    return replace(e, answers=[e.answers[0]._replace(key=b"?"), *e.answers[1:]])


def wrong_sequence(e: Evidence) -> Evidence:
    return replace(e, answers=[e.answers[1]._replace(record=(0, 0), key=b"r0"), *e.answers[1:]])


def innocent_dead_letter(e: Evidence) -> Evidence:
    return replace(e, dead_letters=[*e.dead_letters, DeadLetter((0, 1), b"r1", b"value")])


def no_dead_letter(e: Evidence) -> Evidence:
    return replace(e, dead_letters=[])


def two_dead_letters(e: Evidence) -> Evidence:
    return replace(e, dead_letters=[*e.dead_letters, *e.dead_letters])


def changed_dead_letter(e: Evidence) -> Evidence:
    return replace(e, dead_letters=[e.dead_letters[0]._replace(value=b"changed")])


def started_again(e: Evidence) -> Evidence:
    return replace(e, journal=[*e.journal, entry("start", 1, 1.4)])


def malformed_started(e: Evidence) -> Evidence:
    return replace(e, journal=[*e.journal, entry("start", 3, 3.0)])


def attempts(e: Evidence, count: int) -> Evidence:
    """Return a run whose second request raises that many times before its good finish."""
    limit = e.options.max_attempts
    failures = [
        entry(event, 1, 0.8 + n / 1000 + later, min(n + 1, limit), pid=10)
        for n in range(count)
        for event, later in (("start", 0.0), ("raise", 0.0005))
    ]
    return replace(e, journal=[*failures, *e.journal])


def too_many_attempts(e: Evidence) -> Evidence:
    return attempts(e, e.options.max_attempts + 1)


def attempt_above_the_limit(e: Evidence) -> Evidence:
    last = e.journal[-1]._replace(attempt=e.options.max_attempts + 1)
    return replace(e, journal=[*e.journal[:-2], last._replace(event="start", time=2.0), last])


def overtaken(e: Evidence) -> Evidence:
    return replace(e, journal=[one._replace(time=9.0) if one.record == (0, 0) else one for one in e.journal])


def overlapping(e: Evidence) -> Evidence:
    """Return a run whose second request starts while the first one runs in another process."""
    moved = [one._replace(time=0.2, pid=10) if one[:1] + one[3:4] == ("start", (0, 1)) else one for one in e.journal]
    return replace(e, journal=moved)


def retried_behind_its_successor(e: Evidence) -> Evidence:
    """Return a run whose first request fails and starts again after the second one has run."""
    failed = [one._replace(event="raise") if one == e.journal[1] else one for one in e.journal]
    return replace(e, journal=[*failed, entry("start", 0, 1.5, attempt=2), entry("end", 0, 1.6, attempt=2)])


def not_committed(e: Evidence) -> Evidence:
    return replace(e, committed={0: 3})


def never_committed(e: Evidence) -> Evidence:
    return replace(e, committed={})


def unclean_drain(e: Evidence) -> Evidence:
    return replace(e, exits=[Exit("r0", 6, sigterms=1)])


def crashed_supervisor(e: Evidence) -> Evidence:
    return replace(e, exits=[Exit("r0", 1, faults=frozenset({"process", "broker"}))])


def left_over(e: Evidence) -> Evidence:
    return replace(e, leftovers=["process 1"])


def not_refused(e: Evidence) -> Evidence:
    return replace(e, failed=["was not refused"])


def held_too_long(e: Evidence) -> Evidence:
    return replace(e, holds=[("r0-1", 3.0), ("r1-0", 200.0)])


def samples(*sizes: int, threads: tuple[int, ...] = ()) -> list[Sample]:
    counts = threads or (9,) * len(sizes)
    return [Sample(9, 20.0 * n, size * MEGABYTE, Counter({"rdk:main": counts[n]})) for n, size in enumerate(sizes)]


def much_memory(e: Evidence) -> Evidence:
    return replace(e, samples=samples(60, 250, 240, 250))


def growing_memory(e: Evidence) -> Evidence:
    return replace(e, samples=samples(50, 60, 90, 110, 115, 120))


def more_threads(e: Evidence) -> Evidence:
    return replace(e, samples=samples(60, 60, 60, 60, 60, threads=(9, 9, 40, 40, 40)))


def no_effect(e: Evidence) -> Evidence:
    return replace(e, effects={(0, 0): 1, (0, 1): 1})


def two_effects(e: Evidence) -> Evidence:
    return replace(e, effects={(0, 0): 1, (0, 1): 2, (0, 2): 1})


def effect_of_a_dead_letter(e: Evidence) -> Evidence:
    return replace(e, effects={(0, n): 1 for n in range(4)})


BROKEN = {
    "lost": (unanswered,),
    "duplicate": (answered_twice,),
    "origin": (never_sent, of_another_topic),
    "outcome": (wrong_outcome, wrong_key, wrong_sequence),
    "dead letters": (innocent_dead_letter, no_dead_letter, two_dead_letters, changed_dead_letter),
    "starts": (started_again, malformed_started),
    "attempts": (too_many_attempts, attempt_above_the_limit),
    "order": (overtaken,),
    "handler order": (overlapping, retried_behind_its_successor),
    "commit": (not_committed, never_committed),
    "exit": (unclean_drain, crashed_supervisor),
    "leftover": (left_over,),
    "expectation": (not_refused, held_too_long),
    "memory": (much_memory, growing_memory, more_threads),
    "effects": (no_effect, two_effects, effect_of_a_dead_letter),
}
