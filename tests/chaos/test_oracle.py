"""The oracle finds a violation of every invariant in the evidence of a good run with one wrong part."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from chaos import oracle
from chaos.evidence import DeadLetter, Evidence, Exit, FaultWindow, Sample
from chaos.options import Options
from tests.chaos.broken_runs import (
    BROKEN,
    MEGABYTE,
    answered_twice,
    attempts,
    overlapping,
    overtaken,
    samples,
    started_again,
    unanswered,
)
from tests.chaos.evidence import answer, broken, entry, good, item

if TYPE_CHECKING:
    from collections.abc import Callable
R0, R1 = frozenset({"r0"}), frozenset({"r1"})


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_a_good_run_breaks_nothing(guarantee: str, ordering: str) -> None:
    assert oracle.judge(good(guarantee, ordering)) == []


CASES = [(invariant, breaks) for invariant, several in BROKEN.items() for breaks in several]


@pytest.mark.parametrize(("invariant", "breaks"), CASES, ids=[f.__name__ for _, f in CASES])
def test_a_broken_invariant_is_found(invariant: str, breaks: Callable[[Evidence], Evidence]) -> None:
    assert invariant in broken(breaks(good()))


def test_a_violation_names_the_requests() -> None:
    (violation,) = oracle.judge(unanswered(good()))
    assert str(violation) == "lost: not answered: 1 [0:0]"


# -- answers


def test_at_most_once_a_started_request_may_be_lost() -> None:
    assert broken(unanswered(good("at-most-once"))) == set()


@pytest.mark.parametrize(
    ("reported", "fault", "found"),
    [(False, False, {"lost"}), (True, False, {"lost"}), (False, True, {"lost"}), (True, True, set())],
)
def test_at_most_once_a_loss_has_to_be_reported_and_explained(*, reported: bool, fault: bool, found: set[str]) -> None:
    """The report of the worker alone excuses nothing."""
    e = unanswered(good("at-most-once"))
    never = replace(e, journal=[one for one in e.journal if one.record != (0, 0)])
    never = replace(never, reported_lost=frozenset([(0, 0)] if reported else ()))
    assert broken(replace(never, fault_windows=[FaultWindow(1.0, 2.0)] if fault else [])) == found


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (FaultWindow(0.5, 1.2), set()),
        (FaultWindow(0.5, 1.2, R0), set()),
        (FaultWindow(0.5, 1.2, R1), {"duplicate", "starts", "handler order"}),  # hit another replica
        (FaultWindow(500.0, 501.0), {"duplicate", "starts", "handler order"}),
    ],
)
def test_at_least_once_a_fault_excuses_repetitions_on_its_replica_only(fault: FaultWindow, found: set[str]) -> None:
    twice = replace(answered_twice(started_again(good("at-least-once"))), fault_windows=[fault])
    assert broken(twice) <= found
    assert broken(twice) >= found - {"handler order"}


@pytest.mark.parametrize(("hit", "found"), [({"r1"}, set()), ({"r2"}, {"starts", "duplicate", "handler order"})])
def test_a_process_that_wakes_up_may_start_a_request_after_its_successor(hit: set[str], found: set[str]) -> None:
    e = good("at-least-once")
    late = [entry("start", 1, 1.1, pid=10, replica="r1"), entry("end", 1, 1.4, pid=10, replica="r1")]
    frozen = FaultWindow(0.2, 1.0, frozenset(hit))
    woken = replace(e, journal=[*e.journal, *late], answers=[*e.answers, answer(1)], fault_windows=[frozen])
    assert broken(woken) == found


@pytest.mark.parametrize(("hit", "found"), [("r1", set()), ("r2", {"duplicate"})])
def test_a_request_answered_without_a_start_may_be_answered_again_after_a_fault(hit: str, found: set[str]) -> None:
    """The request was cancelled, and the commit of that answer was lost before the only start (seed 205)."""
    e = good("at-least-once")
    journal = [one._replace(time=one.time + 10.0) for one in e.journal]
    early = answer(2, "CANCELLED", at=1.0)._replace(replica="r1")
    answers = [*(one._replace(at=one.at + 10.0) for one in e.answers), early]
    twice = replace(e, journal=journal, answers=answers, cancelled={(0, 2): 0.9})
    window = FaultWindow(1.5, 2.0, frozenset([hit]))
    assert broken(replace(twice, fault_windows=[window])) == found


def test_exactly_once_no_fault_excuses_a_second_answer() -> None:
    assert broken(replace(answered_twice(good()), fault_windows=[FaultWindow(0.0, 9.0)])) == {"duplicate"}


def test_with_a_store_rows_are_exactly_once_and_answers_at_least_once() -> None:
    rows = {(0, n): 1 for n in range(3)}
    e = replace(good(), options=Options(1, "exactly-once", store="sqlite"), effects=rows)
    assert broken(e) == set()
    twice = replace(e, answers=[*e.answers, answer(1, at=3.0)])
    assert broken(twice) == {"duplicate"}
    assert broken(replace(twice, fault_windows=[FaultWindow(2.0, 2.5)])) == set()


def test_a_request_that_was_sent_again_may_be_in_the_topic_twice() -> None:
    """A broker with a full disk reports a stored record as failed."""
    evidence = good("at-least-once", "partition")
    more = replace(evidence, answers=[*evidence.answers, answer(1)._replace(record=(0, 9))])
    assert broken(more) == {"origin"}
    assert broken(replace(more, resent=[item(1)])) == set()
    assert broken(replace(more, resent=[item(2)])) == {"origin"}


# -- starts


def test_at_most_once_no_fault_excuses_a_second_start() -> None:
    again = replace(started_again(good("at-most-once")), fault_windows=[FaultWindow(0.0, 9.0)])
    assert "starts" in broken(again)


def test_a_failed_attempt_may_be_followed_by_another() -> None:
    assert broken(attempts(good(), 2)) == set()


def test_as_many_attempts_as_the_limit_are_allowed() -> None:
    e = good()
    assert broken(attempts(e, e.options.max_attempts)) == set()


@pytest.mark.parametrize(
    ("fault", "found"),
    [
        (FaultWindow(0.5, 1.2, R0, blocks=True), set()),
        (FaultWindow(0.5, 1.2, R1, blocks=True), {"attempts"}),  # hit another replica
        (FaultWindow(0.5, 1.2, R0), {"attempts"}),  # a kill prevents no commit
        (FaultWindow(500.0, 501.0, R0, blocks=True), {"attempts"}),
    ],
)
def test_a_start_may_go_uncounted_only_while_a_fault_prevents_commits(fault: FaultWindow, found: set[str]) -> None:
    """Another process made it again under the same number."""
    e = replace(attempts(good(), good().options.max_attempts), fault_windows=[fault])
    died = entry("start", 1, 0.5, pid=12)
    assert broken(replace(e, journal=[died, *e.journal])) - {"starts"} == found


@pytest.mark.parametrize("raised", [True, False])
def test_only_the_last_start_of_a_process_may_go_uncounted(*, raised: bool) -> None:
    """A failed attempt is recorded before the next one starts, also in an outage."""
    e = replace(attempts(good(), good().options.max_attempts), fault_windows=[FaultWindow(0.0, 9.0, blocks=True)])
    twice = [
        entry(event, 1, 0.5 + number / 10, number, pid=12)
        for number in (1, 2)
        for event in (("start", "raise") if raised or number == 1 else ("start",))
    ]
    first, second = twice[:2], twice[2:]
    assert broken(replace(e, journal=[*first, *e.journal])) == set()
    assert broken(replace(e, journal=[*first, *second, *e.journal])) == {"attempts"}


@pytest.mark.parametrize(("later", "allowed"), [(0.001, 1), (0.2, 0)])
def test_one_start_may_go_uncounted_if_it_crashes_at_once(later: float, allowed: int) -> None:
    """An idle process records the start while the task runs."""
    e = attempts(good(), good().options.max_attempts)
    crashed = [entry("start", 1, 0.5, pid=12), entry("crash", 1, 0.5 + later, pid=12)]
    once = replace(e, journal=[*crashed, *e.journal])
    assert ("attempts" in broken(once)) is not bool(allowed)
    again = [one._replace(pid=13) for one in crashed]
    assert "attempts" in broken(replace(once, journal=[*again, *once.journal])), "a second one is too many"


@pytest.mark.parametrize(
    ("number", "pid", "later", "allowed"),
    [(1, 11, 0.01, True), (1, 11, 0.2, False), (1, 10, 0.01, False), (2, 11, 0.01, False)],
)
def test_a_failure_that_no_commit_recorded_may_be_repeated(
    number: int, pid: int, later: float, *, allowed: bool
) -> None:
    """Another request crashed the process right after the failure. The next process made the attempt again."""
    e = attempts(good(), good().options.max_attempts)
    failed = [entry("start", 1, 0.5, number, pid=pid), entry("raise", 1, 0.5, number, pid=pid)]
    crash = [entry("start", 2, 0.5 + later, pid=pid), entry("crash", 2, 0.5 + later, pid=pid)]
    assert ("attempts" in broken(replace(e, journal=[*failed, *crash, *e.journal]))) is not allowed


@pytest.mark.parametrize(("fault", "allowed"), [(FaultWindow(0.4, 0.6, R1), True), (FaultWindow(500.0, 501.0), False)])
def test_a_failure_may_be_repeated_while_the_group_rebalances(fault: FaultWindow, *, allowed: bool) -> None:
    """A fault of any replica lets the group rebalance, and then a commit takes longer."""
    e = replace(attempts(good(), good().options.max_attempts), fault_windows=[fault])
    failed = [entry("start", 1, 0.3, pid=11), entry("raise", 1, 0.4, pid=11), entry("start", 2, 0.7, pid=11)]
    assert ("attempts" in broken(replace(e, journal=[*failed, *e.journal]))) is not allowed


@pytest.mark.parametrize(("pid", "allowed"), [(11, True), (10, False)])
def test_the_last_failure_may_be_repeated_as_well(pid: int, *, allowed: bool) -> None:
    """The dead letter was not committed."""
    limit = good().options.max_attempts
    e = attempts(good(), limit)
    again = [entry("start", 1, 0.95, limit, pid=pid), entry("raise", 1, 0.95, limit, pid=pid)]
    assert ("attempts" in broken(replace(e, journal=[*e.journal, *again]))) is not allowed


def test_at_most_once_no_start_goes_uncounted() -> None:
    """A second start is one too many, whatever the fault."""
    failed = [entry("start", 1, 0.8), entry("raise", 1, 0.9), entry("start", 1, 1.0), entry("raise", 1, 1.1)]
    twice = [*(one for one in good().journal if one.record != (0, 1)), *failed]
    block = FaultWindow(0.0, 9.0, blocks=True)
    assert "attempts" in broken(replace(good("at-most-once"), journal=twice, fault_windows=[block]))


def test_a_healthy_request_may_become_a_dead_letter_only_after_its_last_attempt() -> None:
    """Faults that kill a process also use up attempts of a healthy request. The default limit is three."""
    e = good("at-least-once")
    e = replace(e, options=replace(e.options, attempts=3))
    starts = [entry("start", 1, 1.0 + n / 10, n + 1, pid=20 + n) for n in range(3)]
    others = [one for one in e.journal if one.record != (0, 1)]
    dead = replace(
        e,
        answers=[*(one for one in e.answers if one.record != (0, 1)), answer(1, "DEAD_LETTERED")._replace(sequence=1)],
        dead_letters=[*e.dead_letters, DeadLetter((0, 1), b"r1", b"value")],
        fault_windows=[FaultWindow(1.0, 1.3)],
    )
    assert broken(replace(dead, journal=[*others, *starts])) == set()
    assert broken(replace(dead, journal=[*others, *starts[:2]])) == {"outcome", "dead letters"}


def test_a_start_with_a_good_finish_is_no_attempt() -> None:
    """An answer that cannot be committed is computed again, however often."""
    again = [entry(event, 2, 2.4 + n, 1) for n in range(30) for event in ("start", "end")]
    e = replace(good(), journal=[*good().journal, *again], fault_windows=[FaultWindow(0.0, 99.0)])
    assert broken(e) == set()


def test_order_by_key_requires_no_order_among_keys() -> None:
    assert broken(overtaken(good(ordering="key"))) == set()
    same = {record: one._replace(key=b"k") for record, one in good().sent.items()}
    evidence = overtaken(replace(good(ordering="key"), sent=same, answers=[], dead_letters=[]))
    assert "order" in broken(evidence)
    assert broken(overtaken(good(ordering="unordered"))) == set()


@pytest.mark.parametrize(
    ("fault", "answered", "allowed"),
    [
        (FaultWindow(8.0, 8.5, R0), 0.5, True),
        (FaultWindow(8.0, 8.5, R1), 0.5, False),
        (FaultWindow(500.0, 501.0, R0), 0.5, False),
        (FaultWindow(8.0, 8.5, R0), 9.5, False),
    ],
)
def test_a_frozen_process_may_start_a_request_late_that_was_cancelled_meanwhile(
    fault: FaultWindow, answered: float, *, allowed: bool
) -> None:
    """Its next owner answered the request without a start."""
    e = overtaken(replace(good(), fault_windows=[fault]))
    assert "order" in broken(e)
    answers = [one._replace(outcome="CANCELLED", at=answered) if one.record == (0, 0) else one for one in e.answers]
    assert ("order" not in broken(replace(e, answers=answers))) is allowed


@pytest.mark.parametrize(
    ("guarantee", "reported", "fault", "found"),
    [
        ("at-most-once", True, True, set()),
        ("at-most-once", True, False, {"order", "handler order"}),
        ("at-most-once", False, True, {"order"}),
        ("at-least-once", True, True, {"order"}),
    ],
)
def test_a_lost_request_may_start_late_only_with_at_most_once(
    guarantee: str, *, reported: bool, fault: bool, found: set[str]
) -> None:
    evidence = good(guarantee, "partition")
    late = [one._replace(time=5.0 + one.time / 10) if one.record == (0, 1) else one for one in evidence.journal]
    lost = frozenset({(0, 1)} if reported else ())
    windows = [FaultWindow(4.0, 4.5, R0)] if fault else []
    assert broken(replace(evidence, journal=late, reported_lost=lost, fault_windows=windows)) == found


def test_a_fault_explains_handlers_that_overlap() -> None:
    """A member that was cut off runs its task on, while the next owner has already started the next request."""
    assert broken(replace(overlapping(good()), fault_windows=[FaultWindow(0.1, 0.15, R0)])) == set()
    assert broken(replace(overlapping(good()), fault_windows=[FaultWindow(0.1, 0.15, R1)])) == {"handler order"}


# -- processes


def test_an_abandoned_client_keeps_its_threads_only_if_a_broker_had_an_outage() -> None:
    more = replace(good(), samples=samples(60, 60, 60, 60, 60, threads=(9, 9, 17, 17, 17)))
    assert broken(more) == {"memory"}
    assert broken(replace(more, hung_clients=1)) == {"memory"}  # only the worker reports it
    assert broken(replace(more, hung_clients=1, outages=1)) == set()


def test_detached_tasks_may_need_more_clients() -> None:
    """A process has one for each group that it reads, and keeps 16 of them."""
    detaching = replace(good(), options=replace(good().options, features="checkpoints+isolation"))
    for count, found in ((35, set()), (150, {"memory"})):
        more = samples(60, 60, 60, 60, 60, threads=(23, 23, count, count, count))
        assert broken(replace(detaching, samples=more)) == found
        assert broken(replace(good(), samples=more)) == {"memory"}


def test_one_client_may_check_the_membership() -> None:
    usual = Counter({"rdk:main": 9})
    checking, two = Counter({"rdk:main": 16, "rdk:bg": 1}), Counter({"rdk:main": 22, "rdk:bg": 2})
    for threads, found in ((usual, set()), (checking, set()), (two, {"memory"})):
        row = (usual, usual, threads, threads, threads)
        seen = [Sample(9, 20.0 * n, 60 * MEGABYTE, given) for n, given in enumerate(row)]
        assert broken(replace(good(), samples=seen)) == found


def test_threads_of_a_client_that_is_being_replaced_are_allowed() -> None:
    """It may take 15 s until the client of a failed transaction is given up. Samples are 4 s apart."""
    for more, found in ((4, set()), (6, {"memory"})):
        counts = [9] * 5 + [40] * more
        seen = [Sample(9, 4.0 * n, 60 * MEGABYTE, Counter({"rdk:main": count})) for n, count in enumerate(counts)]
        assert broken(replace(good(), samples=seen)) == found


def test_memory_of_one_task_and_of_a_young_process_is_allowed() -> None:
    assert broken(replace(good(), samples=samples(30, 60, 60, 60, 250, 60))) == set()
    assert broken(replace(good(), samples=samples(10, 10, 60, 60, threads=(1, 1, 9, 9)))) == set()


PROCESS, BROKER = frozenset({"process"}), frozenset({"broker"})


@pytest.mark.parametrize(
    ("one", "allowed"),
    [
        (Exit("r0", 0, sigterms=1), True),
        (Exit("r0", 0), False),  # it was not asked to stop
        (Exit("r0", 6, sigterms=1), False),
        (Exit("r0", 6, sigterms=1, faults=BROKER), True),
        (Exit("r0", 6, sigterms=2), True),
        (Exit("r0", -15, sigterms=1), False),
        (Exit("r0", -15, sigterms=1, supervising=False), True),
        (Exit("r0", 2), False),
        (Exit("r0", 2, supervising=False), False),
        (Exit("r0", 2, supervising=False, faults=PROCESS), True),  # a frozen process still has the name
        (Exit("r0", 2, duplicate=True, supervising=False), True),
        (Exit("r0", 4, faults=BROKER), False),  # allowed only at the start
        (Exit("r0", 4, supervising=False), False),
        (Exit("r0", 4, supervising=False, faults=BROKER), True),
        (Exit("r0", 5), False),
        (Exit("r0", 5, faults=PROCESS), True),
        (Exit("r0", 1, duplicate=True), False),
        (Exit("r0", 3, supervising=False, faults=PROCESS), False),
        (Exit("r0", -11, faults=PROCESS | BROKER), False),
        (Exit("r0", -9, faults=PROCESS), False),
    ],
)
def test_exit_codes_are_those_of_the_contract(one: Exit, *, allowed: bool) -> None:
    assert broken(replace(good(), exits=[one])) == (set() if allowed else {"exit"})
