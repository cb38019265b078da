"""The independent checker: a valid history, and histories with a violation of each kind that it knows."""

from __future__ import annotations

import ast
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from chaos import checker, history
from chaos.evidence import FaultWindow
from tests.chaos.evidence import answer, entry, good, item

if TYPE_CHECKING:
    from chaos.evidence import Evidence


def check(evidence: Evidence, folder: Path) -> list[str]:
    file = folder / "history.jsonl"
    history.write(evidence, file)
    return checker.check(checker.read(file))


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
@pytest.mark.parametrize("ordering", ["partition", "key", "unordered"])
def test_a_good_history_is_valid(guarantee: str, ordering: str, tmp_path: Path) -> None:
    assert check(good(guarantee, ordering), tmp_path) == []


def test_the_checker_finds_a_second_answer(tmp_path: Path) -> None:
    twice = [*good().answers, answer(1)]
    assert check(replace(good(), answers=twice), tmp_path) == ["0/1 has 2 answers"]
    assert check(replace(good("at-most-once"), answers=twice), tmp_path) == ["0/1 has 2 answers"]
    assert check(replace(good("at-least-once"), answers=twice), tmp_path) == []


def test_the_checker_finds_a_missing_answer(tmp_path: Path) -> None:
    assert check(replace(good(), answers=good().answers[1:]), tmp_path) == ["0/0 was sent and has no answer"]
    assert check(replace(good("at-most-once"), answers=good().answers[1:]), tmp_path) == []


def test_the_checker_finds_an_answer_to_a_request_that_was_never_sent(tmp_path: Path) -> None:
    more = replace(good(), answers=[*good().answers, answer(7)])
    assert check(more, tmp_path) == ["0/7 was never sent and has an answer"]
    assert check(replace(more, resent=[item(1)]), tmp_path) == []


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_the_checker_finds_a_first_start_out_of_order(guarantee: str, tmp_path: Path) -> None:
    evidence = good(guarantee)
    late = [one._replace(time=9.0) if one.record == (0, 0) else one for one in evidence.journal]
    assert check(replace(evidence, journal=late), tmp_path) == ["0/0 first started after 0/2"]
    keyed = replace(good(guarantee, "key"), journal=late)
    assert check(keyed, tmp_path) == []
    same = {record: one._replace(key=b"k") for record, one in keyed.sent.items()}
    assert check(replace(keyed, sent=same), tmp_path) == ["0/0 first started after 0/2"]


def test_a_late_start_of_a_cancelled_request_is_not_out_of_order(tmp_path: Path) -> None:
    late = [one._replace(time=9.0) if one.record == (0, 0) else one for one in good().journal]
    answers = [one._replace(outcome="CANCELLED") if one.record == (0, 0) else one for one in good().answers]
    evidence = replace(good(), journal=late, answers=answers)
    assert check(evidence, tmp_path) == []
    later = [one._replace(at=9.5) if one.record == (0, 0) else one for one in answers]
    assert check(replace(evidence, answers=later), tmp_path) == ["0/0 first started after 0/2"]


def test_the_checker_finds_too_many_starts(tmp_path: Path) -> None:
    limit = good().options.max_attempts
    failures = [entry("start", 2, 2.0 + n / 100, n + 1) for n in range(limit)]
    assert check(replace(good(), journal=[*good().journal, *failures]), tmp_path) == []
    more = replace(good(), journal=[*good().journal, *failures, entry("start", 2, 3.0)])
    assert check(more, tmp_path) == [f"0/2 started {limit + 1} times without a good finish, the limit is {limit}"]
    blocked = replace(more, fault_windows=[FaultWindow(1.0, 2.0, blocks=True)])
    assert len(check(blocked, tmp_path)) == 1
    died = [entry("start", 2, 1.9, pid=12)]  # another process made it again, because no commit had recorded it
    again = replace(good(), journal=[*good().journal, *died, *failures])
    assert len(check(again, tmp_path)) == 1
    assert check(replace(again, fault_windows=blocked.fault_windows), tmp_path) == []
    fatal = replace(more, journal=[*more.journal, entry("crash", 2, 3.001)])
    assert check(fatal, tmp_path) == []  # one start that crashed at once may have gone uncounted
    slow = replace(more, journal=[*more.journal, entry("crash", 2, 3.2)])
    assert len(check(slow, tmp_path)) == 1
    once = replace(good("at-most-once"), journal=[*good().journal, entry("start", 2, 3.0), entry("crash", 2, 3.001)])
    assert check(once, tmp_path) == ["0/2 started 2 times"]


@pytest.mark.parametrize(
    ("number", "pid", "found"),
    [(1, 8, 0), (1, 9, 1), (2, 8, 1)],
)
def test_a_failure_that_no_commit_recorded_may_be_repeated(number: int, pid: int, found: int, tmp_path: Path) -> None:
    limit = good().options.max_attempts
    failed = [entry("start", 2, 2.5, number, pid=pid), entry("raise", 2, 2.5, number, pid=pid)]
    crash = [entry("start", 3, 2.6, pid=pid), entry("crash", 3, 2.6, pid=pid)]
    failures = [entry("start", 2, 3.0 + n / 100, n + 1) for n in range(limit)]
    assert len(check(replace(good(), journal=[*good().journal, *failed, *crash, *failures]), tmp_path)) == found


def test_the_checker_finds_an_offset_that_is_not_committed(tmp_path: Path) -> None:
    assert check(replace(good(), committed={0: 3}), tmp_path) == ["partition 0 is committed up to 3 of 4"]


def test_the_exit_code_of_the_checker_is_its_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "history.jsonl"
    history.write(good(), file)
    assert checker.main([str(file)]) == 0
    history.write(replace(good(), answers=[]), file)
    assert checker.main([str(file)]) == 1
    assert "0/0 was sent and has no answer" in capsys.readouterr().out
    file.write_text(json.dumps({"type": "start"}) + "\n")
    assert checker.main([str(file)]) == 2
    assert checker.main([]) == 2


def test_the_checker_shares_no_code_with_the_invariants() -> None:
    names = [
        node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
        for node in ast.walk(ast.parse(Path(checker.__file__).read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert not [name for name in names if name and name.split(".")[0] in {"chaos", "worker", "tests"}]
