"""The generated code in ``worker/pb`` matches the files in ``proto/``."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_generated_code_is_not_stale(tmp_path: Path) -> None:
    """If it is, run ``scripts/gen-proto``. Every file of the folder except ``__init__.py`` is generated."""
    subprocess.run([str(ROOT / "scripts" / "gen-proto"), str(tmp_path)], check=True, timeout=55)
    fresh = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text() for file in (ROOT / "worker" / "pb").glob("*_pb2*")}
    assert kept == fresh
