"""The mutants match the code, and a mutant that no test catches is reported."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from chaos import __main__ as command
from chaos import mutants
from chaos.mutant_list import MUTANTS, Mutant
from chaos.procutil import ROOT
from tests.chaos.broken_runs import BROKEN

if TYPE_CHECKING:
    from pathlib import Path

OTHER_INVARIANTS = {"checkpoints", "cancel", "follow-ups"}  # test_features.py has a violation of each


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_every_mutant_matches_the_code_and_is_valid_python(mutant: Mutant, tmp_path: Path) -> None:
    file = tmp_path / mutant.file
    file.parent.mkdir(parents=True)
    file.write_text((ROOT / mutant.file).read_text())
    mutants.apply(mutant, tmp_path)
    assert file.read_text() != (ROOT / mutant.file).read_text()
    ast.parse(file.read_text())
    assert all((ROOT / test).exists() for test in mutant.tests)
    assert mutant.invariant in BROKEN.keys() | OTHER_INVARIANTS
    command.main.make_context("chaos", mutant.run.split())


def test_a_mutant_whose_line_has_changed_is_stale(tmp_path: Path) -> None:
    (tmp_path / "engine.py").write_text("a = 1\na = 1\n")
    mutant = Mutant("name", "lost", "engine.py", "a = 1\n", "a = 2\n", (), "")
    with pytest.raises(mutants.StaleError, match=r"engine\.py has 2 lines like 'a = 1' instead of 1"):
        mutants.apply(mutant, tmp_path)
    with pytest.raises(mutants.StaleError, match="0 lines"):
        mutants.apply(mutant._replace(file="gone.py"), tmp_path)


def test_the_first_test_that_fails_is_named(tmp_path: Path) -> None:
    (tmp_path / "test_one.py").write_text("def test_good():\n    pass\n\n\ndef test_bad():\n    assert not 1\n")
    assert mutants.first_failure(["test_one.py"], tmp_path) == "test_one.py::test_bad"
    assert mutants.first_failure(["test_one.py::test_good"], tmp_path) == ""
    with pytest.raises(RuntimeError, match="cannot run"):
        mutants.first_failure(["test_missing.py"], tmp_path)


@pytest.mark.parametrize(
    ("verdicts", "code"),
    [(["test_a", "test_b"], 0), (["test_a", ""], 1), (["", mutants.StaleError("gone")], 2)],
)
def test_the_exit_code_tells_whether_every_mutant_was_caught(
    verdicts: list[str | Exception], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    left = list(verdicts)

    def caught(_: Mutant) -> str:
        verdict = left.pop(0)
        if isinstance(verdict, Exception):
            raise verdict
        return verdict

    monkeypatch.setattr(mutants, "caught_by", caught)
    monkeypatch.setattr(mutants, "MUTANTS", MUTANTS[:2])
    done = CliRunner().invoke(mutants.main, [])
    assert done.exit_code == code
    assert ("NOT CAUGHT" in done.output) == ("" in verdicts)
    assert ("stale: gone" in done.output) == (code == 2)


def test_the_invariants_that_a_mutant_violates_are_read_from_the_output() -> None:
    output = "    violated duplicate: x: 1\n    violated handler order: y\nFAIL  5 faults, 7 requests: 0 lost\n"
    assert mutants._VIOLATED.findall(output) == ["duplicate", "handler order"]
    assert mutants._VIOLATED.findall("FAIL  crashed: TimeoutError: \n") == ["crashed"]
