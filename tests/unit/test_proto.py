"""The generated code is what the compiler makes of ``proto/task.proto`` today."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_generated_code_is_not_stale(tmp_path: Path) -> None:
    """Otherwise ``scripts/gen-proto`` has to be run; every file of the folder but the package's own is generated."""
    command = [sys.executable, "-I", "-m", "grpc_tools.protoc", "-I", str(ROOT / "proto")]
    outputs = [f"--python_out={tmp_path}", f"--pyi_out={tmp_path}"]
    subprocess.run([*command, *outputs, str(ROOT / "proto" / "task.proto")], check=True, timeout=30)
    fresh = {file.name: file.read_text() for file in tmp_path.iterdir()}
    kept = {file.name: file.read_text() for file in (ROOT / "worker" / "pb").glob("task_pb2*")}
    assert kept == fresh
