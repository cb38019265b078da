"""The record keeps every run, and the pages about reliability match it."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import click
import pytest

from chaos import __main__ as command
from chaos import cluster as clusters
from chaos import code_hash, faults, procutil, record, report, suite
from chaos import plan as plans
from chaos import run as runs
from chaos.options import Options
from chaos.plan import Plan
from chaos.procutil import ROOT
from chaos.promises import PROMISES
from chaos.run import Result
from chaos.violation import Violation
from tests.chaos.evidence import good

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

IDENTITY = {"engine": "abc", "suite": "def", "commit": "123"}


def line(*violations: str, seed: int = 1) -> record.Line:
    evidence = replace(good(), options=Options(seed, "exactly-once"))
    found = [Violation("lost", text) for text in violations]
    plan = Plan(evidence.options, [], [], 1.0)
    result = Result(plan, evidence, found, [], Counter({"kill-process": 3, "restart": 1}), 0, 9.0, 0.5)
    return {**record.of_result(result), **IDENTITY}


def page(lines: Sequence[record.Line], path: Path = report.PROMISES_PAGE) -> str:
    return report.documents(lines)[path]


def test_a_run_that_passes_later_does_not_replace_one_that_was_broken(tmp_path: Path) -> None:
    file = tmp_path / "record.jsonl"
    for one in (line("not answered"), line(), line()):
        record.append(one, file)
    assert [one["outcome"] for one in record.load(file)] == ["broken", "passed", "passed"]
    assert "\n| exactly-once | 2 of 3 | 12 | 12 |" in page(record.load(file))


def test_the_record_has_the_cpu_pressure_of_a_run() -> None:
    """A run beside other programs shows it."""
    assert line()["cpu_pressure"] == 50
    assert 0 <= procutil.seconds_without_cpu() <= time.monotonic()


def test_a_run_that_raises_counts_as_not_passed() -> None:
    crash = {**record.of_crash(Options(5, "exactly-once"), "TimeoutError: r0 is not ready", 12.3), **IDENTITY}
    assert "\n| exactly-once | 1 of 2 | 4 | 4 |" in page([line(), crash])
    assert "crashed: TimeoutError: r0 is not ready" in page([line(), crash], report.RECORD)
    assert report.terminal(crash) == "FAIL  crashed: TimeoutError: r0 is not ready"


def test_a_run_that_was_killed_counts_as_not_passed(tmp_path: Path) -> None:
    """The first line of a run is written before anything else happens. A killed run has no other line."""
    file = tmp_path / "record.jsonl"
    first, second = (record.of_beginning(Options(seed, "exactly-once")) for seed in (1, 2))
    for one in (first, second, {**line(seed=2), "id": second["id"]}):
        record.append({**one, **IDENTITY}, file)
    runs = record.runs(record.load(file))
    assert [(one["seed"], one["outcome"]) for one in runs] == [(1, "crashed"), (2, "passed")]
    assert "\n| exactly-once | 1 of 2 | 4 | 4 |" in page(runs)
    assert "killed: the run has no end in the record" in page(runs, report.RECORD)


def test_a_run_is_recorded_as_begun_before_it_is_executed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    lines: list[record.Line] = []

    @contextlib.asynccontextmanager
    async def no_brokers(*_: object, **__: object) -> AsyncIterator[object]:
        yield object()

    async def raises(*_: object) -> None:
        assert [one["outcome"] for one in lines] == ["begun"]
        raise TimeoutError("r0 is not ready")

    monkeypatch.setattr(clusters, "running", no_brokers)
    monkeypatch.setattr(runs, "execute", raises)
    monkeypatch.setattr(record, "append", lines.append)
    monkeypatch.setattr(suite, "write_documents", lambda: None)
    plan = Plan(Options(5, "exactly-once"), [], [], 1.0)
    assert suite.run([plan], IDENTITY, suite.Ways(small_disks=False)) == 1
    assert [one["outcome"] for one in lines] == ["begun", "crashed"]
    assert lines[0]["id"] == lines[1]["id"]
    assert lines[0]["engine"] == "abc"


def test_the_pages_are_about_the_last_engine_and_the_record_has_all_broken_runs() -> None:
    old = {**line("not answered", seed=7), "engine": "old"}
    assert "## Engine `abc`" in page([old, line()])
    assert "\n| exactly-once | 1 of 1 | 4 | 4 |" in page([old, line()])
    text = page([old, line()], report.RECORD)
    assert "## Engine `abc`" in text
    assert "engine `old`, seed 7, exactly-once:\n  - lost: not answered" in text
    assert "| `old` |" in text


def test_the_page_leaves_out_the_runs_of_an_earlier_suite_and_says_so() -> None:
    earlier = [{**line("not answered"), "suite": "old"}, {**line(), "suite": "old"}]
    text = page([*earlier, line()])
    assert "## Engine `abc`, suite `def`" in text
    assert "tested this engine too: 1 of 2 runs passed, with 8 faults" in text
    assert "\n| exactly-once | 1 of 1 | 4 | 4 |" in text
    assert "Earlier versions" not in page([line(), line()])


def test_the_page_says_how_many_runs_have_the_default_settings_and_how_many_requests_are_short() -> None:
    defaults = {**line("not answered"), "session": 45.0}
    text = " ".join(page([line(), defaults, {**line(), "load": "short"}]).split())
    assert "With the defaults (3 attempts, sessions of 45 s) 0 of 1 runs passed, with 4 faults." in text
    assert "Tasks of 2 ms or less, in 1 of the runs, are 4 of the requests." in text


def test_the_record_shows_the_first_violations_of_a_broken_run() -> None:
    many = {**line("not answered"), "violations": [f"violation {n}" for n in range(7)]}
    text = report.documents([many])[report.RECORD]
    assert "- violation 4\n  - and 2 more, which" in text
    assert "violation 5" not in text


def test_a_promise_counts_the_runs_that_test_it() -> None:
    """A broken run counts against every promise that it tests, and against no other."""
    broken = {**line("not answered"), "mix": "clean", "happened": {"restart": 2}}
    text = page([line(), broken])
    assert "| exactly-once: every request has exactly one committed answer | 1 of 2 | 6 | 6 | 8 |" in text
    assert "| deployments repeat nothing | 0 of 1 | 2 | 2 | 4 |" in text
    assert "| at-most-once: no request starts twice | 0 of 0 | 0 | 0 | 0 |" in text


def test_a_promise_about_one_guarantee_counts_only_its_runs_and_names_its_faults() -> None:
    ours = {**line(), "happened": {"drop": 2, "cut": 5}}
    other = {**ours, "guarantee": "at-least-once"}
    assert "| lost packets only slow the work down | 1 of 1 | 7 | 2 | 4 |" in page([other, ours])


def test_the_command_of_a_promise_describes_a_run_that_tests_it() -> None:
    for promise in PROMISES:
        with command.main.make_context("chaos", promise.command.split()) as context, context:
            given = dict(context.params)
            for name in ("only_list", "document", "write", "keep", "only_plan", "jobs"):
                del given[name]
            (options,) = command._chosen(given)
        plan = plans.draw(options, rights=faults.RIGHTS)
        run = {**record.of_beginning(options), "happened": Counter(one.kind.name for one in plan.faults)}
        assert promise.is_tested_by(run), promise.text
        assert not promise.kinds or sum(run["happened"][name] for name in promise.kinds)


def test_the_record_names_clean_faults_and_faults_that_never_ran() -> None:
    text = page([line()], report.RECORD)
    assert "4 in all, 1 of them clean" in text
    assert "Never injected into this engine: freeze-process" in text


def test_the_terminal_shows_the_verdict() -> None:
    assert report.terminal(line()).startswith("PASS  4 faults, 4 requests: 0 lost")
    assert report.terminal(line("not answered")).startswith("FAIL  4 faults")


def test_the_pages_in_the_repository_are_those_of_the_record() -> None:
    """``scripts/chaos --document`` writes them."""
    for path, text in report.documents(record.runs(record.load())).items():
        assert path.read_text(encoding="utf-8") == text


def test_every_line_of_the_record_has_an_outcome_and_an_engine() -> None:
    for one in record.runs(record.load()):
        assert one["outcome"] in (record.PASSED, record.BROKEN, record.CRASHED)
        assert one["engine"]
        assert bool(one["violations"]) == (one["outcome"] != record.PASSED)


def test_no_published_run_was_removed_from_the_record() -> None:
    """Lines are only appended, so the number of lines from before the record was append-only is fixed."""
    published = [one for one in record.load() if one["engine"].startswith("sha256:")]
    assert len(published) == 104
    assert sum(one["outcome"] == record.BROKEN for one in published) == 6


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="needs a git checkout")
def test_an_engine_is_the_tree_hash_of_git(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", "-C", str(tmp_path), *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "--quiet")
    (tmp_path / "worker").mkdir()
    (tmp_path / "worker/a.py").write_text("1\n")
    git("add", ".")
    git("commit", "--quiet", "-m", "first")
    monkeypatch.setattr(code_hash, "ROOT", tmp_path)
    assert code_hash.tree_hash("worker") == git("rev-parse", "HEAD:worker")
    (tmp_path / "worker/a.py").write_text("2\n")
    assert code_hash.tree_hash("worker") != git("rev-parse", "HEAD:worker")
    assert git("status", "--porcelain") == "M worker/a.py"
    code = code_hash.tree_hash("worker", ("*.py",))
    (tmp_path / "worker/notes.md").write_text("1\n")
    assert code_hash.tree_hash("worker", ("*.py",)) == code
    (tmp_path / "worker/a.py").write_text("3\n")
    changed = code_hash.tree_hash("worker", ("*.py",))
    assert changed != code
    (tmp_path / "worker/page.py").write_text("1\n")
    assert code_hash.tree_hash("worker", ("*.py",), without=("page.py",)) == changed
    assert code_hash.tree_hash("worker", ("*.py",)) != changed
    monkeypatch.setattr(code_hash, "ROOT", tmp_path / "worker/nowhere")
    with pytest.raises(RuntimeError, match="needs a git checkout"):
        code_hash.commit()


def test_without_git_nothing_is_recorded_and_one_line_says_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(code_hash, "ROOT", tmp_path / "nowhere")
    with pytest.raises(click.ClickException, match="--write: the record needs a git checkout"):
        command._identity()
