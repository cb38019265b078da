"""The Python producer and consumer of docs/reference/wire-contract.md work as they are printed."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.unit.documents import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka.support.site import Site

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(120)]


def save(site: Site, folder: Path) -> None:
    """The programs of the page, with this site's broker and topics, beside their generated messages."""
    for block in blocks("docs/reference/wire-contract.md"):
        if block.language == "python":
            code = block.code.replace("127.0.0.1:9092", site.bootstrap)
            code = code.replace('"requests"', f'"{site.requests}"').replace('"answers"', f'"{site.ack}"')
            (folder / block.title).write_text(code, encoding="utf-8")
    run(folder, "-m", "grpc_tools.protoc", f"-I{ROOT / 'proto'}", "--python_out=.", str(ROOT / "proto/task.proto"))


def run(folder: Path, *arguments: str) -> str:
    environment = {"PATH": os.environ["PATH"]}  # without this project on the path: only what the page says
    done = subprocess.run(
        [sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_produce_and_consume_in_python(site: Callable[..., Site], tmp_path: Path) -> None:
    """Three requests are produced, each is answered once, and the answers carry the requests' keys."""
    place = site()
    save(place, tmp_path)
    place.start(cwd=ROOT, WORKER_HANDLER="examples.hello:greet", WORKER_HANDLER_KWARGS="{}")

    origins = run(tmp_path, "produce.py").split()
    answers = run(tmp_path, "consume.py").splitlines()

    assert len(set(origins)) == 3
    assert sorted(answers) == [f"b'{name}' OK b'Hello, {name}!'" for name in ("Ada", "Edsger", "Grace")]
