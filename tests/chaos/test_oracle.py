"""Every law is seen broken: the oracle is given a good ledger with one thing wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chaos import oracle
from chaos.ledger import Answer, Evidence, Exit, Letter, Mark, Sample, read_journal
from chaos.load import Item
from chaos.plan import Options

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

TOPIC = "requests"
MEGABYTE = 2**20


def item(number: int, kind: str = "nap", key: bytes | None = None) -> Item:
    return Item(number, 0.0, kind, key or f"r{number}".encode(), None if kind == "null" else b"value")


def answer(offset: int, outcome: str = "OK", at: float = 0.0) -> Answer:
    sequence = 0 if outcome == "DEAD_LETTERED" else offset
    return Answer(TOPIC, (0, offset), outcome, sequence, f"r{offset}".encode(), at or offset + 0.5)


def mark(event: str, offset: int, time: float, attempt: int = 1, pid: int = 9) -> Mark:
    return Mark(event, pid, (0, offset), attempt, time)


def good(guarantee: str = "exactly-once", ordering: str = "partition") -> Evidence:
    """Three tasks and one dead letter, without a fault."""
    tasks = range(3)
    return Evidence(
        options=Options(1, guarantee, ordering),
        topic=TOPIC,
        sent={**{(0, n): item(n) for n in tasks}, (0, 3): item(3, "null")},
        answers=[*map(answer, tasks), answer(3, "DEAD_LETTERED")],
        letters=[Letter((0, 3), b"r3", None)],
        marks=[mark(event, n, n + later) for n in tasks for event, later in (("start", 0.0), ("end", 0.3))],
        committed={0: 4},
        ends={0: 4},
        exits=[Exit("r0", 0, wanted=True)],
    )


def laws(evidence: Evidence) -> set[str]:
    return {violation.law for violation in oracle.judge(evidence)}


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_a_good_ledger_breaks_no_law(guarantee: str, ordering: str) -> None:
    assert oracle.judge(good(guarantee, ordering)) == []


def lost(e: Evidence) -> Evidence:
    return replace(e, answers=e.answers[1:])


def doubled(e: Evidence) -> Evidence:
    return replace(e, answers=[*e.answers, answer(1)])


def foreign(e: Evidence) -> Evidence:
    return replace(e, answers=[*e.answers, answer(77)])


def of_another_topic(e: Evidence) -> Evidence:
    return replace(e, answers=[*e.answers[1:], e.answers[0]._replace(topic="other")])


def wrong_outcome(e: Evidence) -> Evidence:
    return replace(e, answers=[answer(0, "EXPIRED"), *e.answers[1:]])


def wrong_key(e: Evidence) -> Evidence:
    return replace(e, answers=[e.answers[0]._replace(key=b"?"), *e.answers[1:]])


def wrong_sequence(e: Evidence) -> Evidence:
    return replace(e, answers=[e.answers[1]._replace(place=(0, 0), key=b"r0"), *e.answers[1:]])


def buried_alive(e: Evidence) -> Evidence:
    return replace(e, letters=[*e.letters, Letter((0, 1), b"r1", b"value")])


def no_letter(e: Evidence) -> Evidence:
    return replace(e, letters=[])


def two_letters(e: Evidence) -> Evidence:
    return replace(e, letters=[*e.letters, *e.letters])


def changed_letter(e: Evidence) -> Evidence:
    return replace(e, letters=[e.letters[0]._replace(value=b"changed")])


def started_again(e: Evidence) -> Evidence:
    return replace(e, marks=[*e.marks, mark("start", 1, 1.4)])


def malformed_started(e: Evidence) -> Evidence:
    return replace(e, marks=[*e.marks, mark("start", 3, 3.0)])


def overtaken(e: Evidence) -> Evidence:
    return replace(e, marks=[one._replace(time=9.0) if one.place == (0, 0) else one for one in e.marks])


def not_committed(e: Evidence) -> Evidence:
    return replace(e, committed={0: 3})


def never_committed(e: Evidence) -> Evidence:
    return replace(e, committed={})


def bad_exit(e: Evidence) -> Evidence:
    return replace(e, exits=[Exit("r0", 6, wanted=True)])


def crashed_supervisor(e: Evidence) -> Evidence:
    return replace(e, exits=[Exit("r0", 1, wanted=False)])


def left_over(e: Evidence) -> Evidence:
    return replace(e, leftovers=["process 1"])


def not_refused(e: Evidence) -> Evidence:
    return replace(e, failed=["was not refused"])


def samples(*sizes: int, threads: tuple[int, ...] = ()) -> list[Sample]:
    counts = threads or (9,) * len(sizes)
    return [Sample(9, 20.0 * n, size * MEGABYTE, Counter({"rdk:main": counts[n]})) for n, size in enumerate(sizes)]


def much_memory(e: Evidence) -> Evidence:
    return replace(e, samples=samples(60, 250, 240, 250))


def more_and_more_memory(e: Evidence) -> Evidence:
    return replace(e, samples=samples(50, 60, 90, 110, 115, 120))


def more_and_more_threads(e: Evidence) -> Evidence:
    return replace(e, samples=samples(60, 60, 60, 60, 60, threads=(9, 9, 40, 40, 40)))


def test_a_client_that_was_left_behind_keeps_its_threads() -> None:
    more = replace(good(), samples=samples(60, 60, 60, 60, 60, threads=(9, 9, 17, 17, 17)))
    assert laws(more) == {"memory"}
    assert laws(replace(more, hung=1)) == set()


def test_one_client_may_be_looking_at_the_group() -> None:
    usual = Counter({"rdk:main": 9})
    looking, two = Counter({"rdk:main": 16, "rdk:bg": 1}), Counter({"rdk:main": 22, "rdk:bg": 2})
    for threads, broken in ((usual, set()), (looking, set()), (two, {"memory"})):
        row = (usual, usual, threads, threads, threads)
        seen = [Sample(9, 20.0 * n, 60 * MEGABYTE, given) for n, given in enumerate(row)]
        assert laws(replace(good(), samples=seen)) == broken


def test_threads_of_a_client_that_is_being_replaced_are_let_be() -> None:
    assert laws(replace(good(), samples=samples(60, 60, 60, 60, 60, threads=(9, 9, 9, 40, 40)))) == set()


def test_with_a_store_rows_are_exact_and_answers_at_least_once() -> None:
    rows = {(0, n): 1 for n in range(3)}
    e = replace(good(), options=Options(1, "exactly-once", store="sqlite"), effects=rows)
    assert laws(e) == set()
    twice = replace(e, answers=[*e.answers, answer(1, at=3.0)])
    assert laws(twice) == {"duplicate"}
    assert laws(replace(twice, excuses=[(2.0, 2.5)])) == set()


def held_for_ever(e: Evidence) -> Evidence:
    return replace(e, holds=[("r0-1", 3.0), ("r1-0", 200.0)])


def test_memory_that_a_task_takes_for_a_moment_and_processes_that_begin_are_let_be() -> None:
    assert laws(replace(good(), samples=samples(30, 60, 60, 60, 250, 60))) == set()
    assert laws(replace(good(), samples=samples(10, 10, 60, 60, threads=(1, 1, 9, 9)))) == set()


def no_effect(e: Evidence) -> Evidence:
    return replace(e, effects={(0, 0): 1, (0, 1): 1})


def two_effects(e: Evidence) -> Evidence:
    return replace(e, effects={(0, 0): 1, (0, 1): 2, (0, 2): 1})


def effect_of_a_dead_letter(e: Evidence) -> Evidence:
    return replace(e, effects={(0, n): 1 for n in range(4)})


BROKEN = {
    "lost": (lost,),
    "duplicate": (doubled,),
    "origin": (foreign, of_another_topic),
    "outcome": (wrong_outcome, wrong_key, wrong_sequence),
    "letters": (buried_alive, no_letter, two_letters, changed_letter),
    "starts": (started_again, malformed_started),
    "order": (overtaken,),
    "commit": (not_committed, never_committed),
    "exit": (bad_exit, crashed_supervisor),
    "leftover": (left_over,),
    "expectation": (not_refused, held_for_ever),
    "memory": (much_memory, more_and_more_memory, more_and_more_threads),
    "effects": (no_effect, two_effects, effect_of_a_dead_letter),
}
CASES = [(law, break_it) for law, breaks in BROKEN.items() for break_it in breaks]


@pytest.mark.parametrize(("law", "break_it"), CASES, ids=[f.__name__ for _, f in CASES])
def test_a_broken_law_is_found(law: str, break_it: Callable[[Evidence], Evidence]) -> None:
    assert law in laws(break_it(good()))


# -- what is allowed, and only just


def test_at_most_once_what_was_started_may_be_lost_and_nothing_else() -> None:
    started = lost(good("at-most-once"))
    assert laws(started) == set()
    never = replace(started, marks=[one for one in started.marks if one.place != (0, 0)])
    assert laws(never) == {"lost"}
    assert laws(replace(never, told_lost=frozenset([(0, 0)]))) == set()


def test_at_most_once_nothing_starts_twice_whatever_happened() -> None:
    again = replace(started_again(good("at-most-once")), excuses=[(0.0, 9.0)])
    assert laws(again) == {"starts"}


@pytest.mark.parametrize(("excuse", "found"), [((0.5, 1.2), set()), ((500.0, 501.0), {"duplicate", "starts"})])
def test_at_least_once_a_fault_excuses_what_it_overlaps(excuse: tuple[float, float], found: set[str]) -> None:
    twice = replace(doubled(started_again(good("at-least-once"))), excuses=[excuse])
    assert laws(twice) == found


def test_a_failed_attempt_may_be_followed_by_another() -> None:
    failed = [*good().marks, mark("raise", 1, 1.2), mark("start", 1, 1.4, attempt=2)]
    assert laws(replace(good(), marks=failed)) == set()


def test_exactly_once_no_fault_excuses_a_second_answer() -> None:
    assert laws(replace(doubled(good()), excuses=[(0.0, 9.0)])) == {"duplicate"}


def test_order_by_key_asks_for_no_order_among_keys() -> None:
    assert laws(overtaken(good(ordering="key"))) == set()
    same = {place: one._replace(key=b"k") for place, one in good().sent.items()}
    evidence = overtaken(replace(good(ordering="key"), sent=same, answers=[], letters=[]))
    assert "order" in laws(evidence)
    assert laws(overtaken(good(ordering="unordered"))) == set()


def test_a_violation_names_the_requests() -> None:
    (violation,) = oracle.judge(lost(good()))
    assert str(violation) == "lost: not answered: 1 [0:0]"


def test_a_journal_whose_last_line_was_cut_off(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("start 9 0 1 1 2.5\nend 9 0 1 1 3.5\nstart 9 0")
    assert read_journal(journal) == [mark("start", 1, 2.5), mark("end", 1, 3.5)]
    assert read_journal(tmp_path / "none") == []


def test_a_request_sent_again_may_stand_in_the_topic_twice() -> None:
    """A broker without room says that it has not taken it, and may have."""
    evidence = good("at-least-once", "partition")
    more = replace(evidence, answers=[*evidence.answers, answer(1)._replace(place=(0, 9))])
    assert laws(more) == {"origin"}
    assert laws(replace(more, again=[item(1)])) == set()
    assert laws(replace(more, again=[item(2)])) == {"origin"}


def test_what_was_called_lost_may_start_late() -> None:
    evidence = good("at-most-once", "partition")
    late = [mark._replace(time=99.0) if mark.place == (0, 1) else mark for mark in evidence.marks]
    assert laws(replace(evidence, marks=late)) == {"order"}
    assert laws(replace(evidence, marks=late, told_lost=frozenset({(0, 1)}))) == set()
