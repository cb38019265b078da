"""The project accepts only the versions of confluent-kafka with which it is tested."""

from __future__ import annotations

import tomllib
from importlib.metadata import version
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def accepted() -> Requirement:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (found,) = (line for line in project["dependencies"] if line.startswith("confluent-kafka"))
    return Requirement(found)


def test_the_locked_client_is_accepted() -> None:
    lock = (ROOT / "requirements.lock").read_text().splitlines()
    (locked,) = (line.split("==")[1] for line in lock if line.startswith("confluent-kafka=="))

    assert accepted().specifier.contains(locked)
    assert locked == version("confluent-kafka")


def test_other_minor_versions_of_the_client_are_not_accepted() -> None:
    """2.12 has no context manager for its admin client; a later one may word the log lines differently."""
    locked_out = [other for other in ("2.12.0", "2.15.0", "2.17.0") if accepted().specifier.contains(other)]

    assert locked_out == []
