"""The example of docs/how-to/testing.md runs as a user would run it, and pytest finds the plugin."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from typing import TYPE_CHECKING

from tests.unit.documents import ROOT, blocks

if TYPE_CHECKING:
    from pathlib import Path

WATCH = """
import sys

def pytest_sessionstart(session):
    heavy = sorted({"confluent_kafka", "google.protobuf", "structlog", "worker.process"} & set(sys.modules))
    print("plugin:", "worker.testing.plugin" in sys.modules, "imported:", heavy)
"""


def installed(place: Path) -> None:
    """Write the entry points of pyproject.toml, as an installation does."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    metadata = place / "example_of_plugin-1.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: example-of-plugin\nVersion: 1\n")
    lines = [f"{name} = {target}" for name, target in project["entry-points"]["pytest11"].items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[pytest11]", *lines]))


def test_the_example_of_the_page_passes_with_the_plugin(tmp_path: Path) -> None:
    """Pytest finds the plugin by its entry point. The start of pytest imports no heavy module."""
    installed(tmp_path)
    (block,) = [block for block in blocks("docs/how-to/testing.md") if block.title]
    (tmp_path / block.title).write_text(block.code, encoding="utf-8")
    (tmp_path / "conftest.py").write_text(WATCH, encoding="utf-8")
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-s", "-p", "no:cacheprovider", block.title],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert "plugin: True imported: []" in run.stdout
    assert f"{block.code.count('def test_')} passed" in run.stdout
