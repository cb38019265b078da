"""The journal, and the windows in which a fault explains a second start."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from chaos.evidence import FaultWindow, read_journal
from chaos.fault_windows import explained, never_excused, unclean, windows
from tests.chaos.evidence import entry, good

if TYPE_CHECKING:
    from pathlib import Path


def test_a_last_line_of_a_journal_that_was_cut_off_is_ignored(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    journal.write_text("start r0 9 0 1 1 2.5 0\nend r0 9 0 1 1 3.5 0\nstart r0 9 0")
    assert read_journal(journal) == [entry("start", 1, 2.5), entry("end", 1, 3.5)]
    assert read_journal(tmp_path / "none") == []


def test_a_start_that_is_repeated_in_the_same_process_has_its_own_finish() -> None:
    again = [entry("start", 1, 5.0), entry("end", 1, 5.5), entry("start", 1, 7.0)]
    finishes = replace(good(), journal=[*good().journal, *again]).finishes
    assert finishes[entry("start", 1, 1.0)].time == 1.3
    assert finishes[entry("start", 1, 5.0)].time == 5.5
    assert entry("start", 1, 7.0) not in finishes


def test_clean_faults_explain_nothing() -> None:
    injected = [("restart", "r0", 1.0, 2.0), ("kill-process", "r1", 3.0, 4.0), ("broker-kill", "", 5.0, 6.0)]
    assert unclean(injected) == [FaultWindow(3.0, 4.0, frozenset({"r1"})), FaultWindow(5.0, 6.0, blocks=True)]


def test_a_window_reaches_one_session_and_three_seconds_beyond_the_fault() -> None:
    (found,) = windows(replace(good(), fault_windows=[FaultWindow(10.0, 11.0)]))
    assert (found.begin, found.end) == (9.9, 19.0)


def test_a_request_that_ends_its_process_opens_a_window_for_its_replica_alone() -> None:
    crash = [*good().journal, entry("start", 7, 4.0, replica="r1", pid=5), entry("crash", 7, 4.1, replica="r1", pid=5)]
    (found,) = windows(replace(good(), journal=crash))
    assert found.replicas == {"r1"}


def test_a_crash_that_its_process_survived_explains_nothing() -> None:
    """A request that runs out of memory announces a crash before it knows whether the process ends."""
    crash = [*good().journal, entry("crash", 7, 4.1, pid=5), entry("raise", 7, 4.2, pid=5)]
    assert windows(replace(good(), journal=crash)) == []


def test_a_fault_of_all_replicas_explains_events_of_any_replica() -> None:
    everywhere, one = FaultWindow(1.0, 2.0), FaultWindow(1.0, 2.0, frozenset({"r0"}))
    assert explained((0.0, 1.5), {"r1"}, [everywhere])
    assert not explained((0.0, 1.5), {"r1"}, [one])
    assert explained((0.0, 1.5), {"r1", "r0"}, [one])
    assert explained((0.0, 1.5), (), [one])
    assert not explained((2.5, 3.0), {"r0"}, [one])


def test_a_request_counts_as_never_excused_if_no_window_overlaps_its_life() -> None:
    """The windows of a run with sessions of 5 s end 8 s after the fault."""
    evidence = replace(good(), sent_at={(0, n): 100.0 * n for n in range(4)})
    answers = [one._replace(at=100.0 * n + 1.0) for n, one in enumerate(evidence.answers)]
    evidence = replace(evidence, answers=answers, journal=[])
    assert never_excused(evidence) == 4
    late = FaultWindow(195.0, 196.0, frozenset({"r1"}))
    assert never_excused(replace(evidence, fault_windows=[late])) == 3
    assert never_excused(replace(evidence, fault_windows=[late, FaultWindow(0.5, 99.0)])) == 1
    assert never_excused(replace(evidence, answers=answers[:2])) == 2
