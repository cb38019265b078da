"""Mutants of the engine: one line is broken, and the quick tests must notice. ``scripts/chaos mutants``.

Each mutant lives in a copy of the code in a temporary folder. The tests use in-memory brokers, so the list takes
minutes. Exit code 0: every mutant was caught. 1: one survived. 2: one no longer fits the code.

With ``--under-faults`` each mutant runs in the fault suite instead, which shows the invariants that it violates. Not
every mutant shows there: some need a coincidence of milliseconds, and only the tests can arrange it.
"""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import click

from chaos.mutant_list import MUTANTS
from chaos.procutil import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.mutant_list import Mutant

_COPIED = ("worker", "tests", "proto", "chaos", "pyproject.toml")
_SECONDS = 300.0
CRASHED = "crashed"  # the run, which judges nothing
_VIOLATED = re.compile(r"^(?: {4}violated |FAIL  )([a-z ]+):", re.MULTILINE)  # a crashed run has only the second
_FAILED = re.compile(r"^FAILED (\S+)", re.MULTILINE)
STALE = 2


class StaleError(Exception):
    """The line of a mutant is not in the code, or occurs more than once."""


def apply(mutant: Mutant, folder: Path) -> None:
    """Break the line in a copy of the code. Raise StaleError if it does not fit."""
    file = folder / mutant.file
    text = file.read_text(encoding="utf-8") if file.exists() else ""
    if text.count(mutant.line) != 1:
        raise StaleError(f"{mutant.file} has {text.count(mutant.line)} lines like {mutant.line.strip()!r} instead of 1")
    file.write_text(text.replace(mutant.line, mutant.broken), encoding="utf-8")


def copy(folder: Path) -> None:
    """Copy the files that the tests need."""
    for name in _COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, folder / name)


def caught_by(mutant: Mutant) -> str:
    """Return the first failing test, or "". Raise StaleError, or RuntimeError if the tests cannot run."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as temporary:
        folder = Path(temporary)
        copy(folder)
        apply(mutant, folder)
        return first_failure(mutant.tests, folder)


def violated_by(mutant: Mutant) -> str:
    """Return the invariants that its run of the fault suite violates only with the mutant, or "".

    Raise as ``caught_by``.
    """
    return ", ".join(sorted(_violations(mutant.run, mutant) - _violations(mutant.run) - {CRASHED}))


@functools.cache
def _violations(run: str, mutant: Mutant | None = None) -> frozenset[str]:
    """Return the invariants that a run violates in a copy of the code, with the mutant if there is one."""
    with tempfile.TemporaryDirectory(prefix="mutant-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        copy(folder)
        (folder / ".runtime").symlink_to(ROOT / ".runtime")
        if mutant:
            apply(mutant, folder)
        command = [sys.executable, "-P", "-m", "chaos", *run.split()]
        environment = {**os.environ, "PYTHONPATH": temporary, "TMPDIR": temporary, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    found = frozenset(_VIOLATED.findall(done.stdout))
    if done.returncode != 0 and not found:
        raise RuntimeError(f"the suite cannot run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return found


def first_failure(tests: Sequence[str], folder: Path) -> str:
    """Return the first of these tests that fails in the folder, or "". Raise RuntimeError if they cannot run."""
    command = [sys.executable, "-P", "-m", "pytest", "-x", "-q", "-n", "0", "-p", "no:cacheprovider", *tests]
    environment = {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=_SECONDS
        )
    except subprocess.TimeoutExpired:
        return f"no end within {_SECONDS:g} s"
    if done.returncode == 0:
        return ""
    found = _FAILED.findall(done.stdout)
    if done.returncode != 1 or not found:
        raise RuntimeError(f"the tests cannot run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    return str(found[0])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", default="", help="Run only the mutants whose name contains this.")
@click.option("--under-faults", is_flag=True, help="Run each in the fault suite: an hour, with real brokers.")
def main(*, only: str, under_faults: bool) -> None:
    """Break the engine one line at a time. Print the test that notices and the invariant that guards the line.

    Under faults, print the invariants that the mutant violates, and the run.
    """
    worst = 0
    click.echo("| mutant | invariant | caught by |\n|---|---|---|")
    for mutant in MUTANTS:
        if only not in mutant.name:
            continue
        try:
            verdict = violated_by(mutant) if under_faults else caught_by(mutant)
        except StaleError as error:
            verdict, worst = f"stale: {error}", STALE
        if not verdict and not under_faults:
            worst = max(worst, 1)
        shown = (f"{verdict or 'not seen'} in `{mutant.run}`") if under_faults else verdict or "NOT CAUGHT"
        click.echo(f"| {mutant.name} | {mutant.invariant} | {shown} |")
    sys.exit(worst)


if __name__ == "__main__":
    main()
