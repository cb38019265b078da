"""The commands of the README and the tutorial do what the pages say, each on a new broker."""

from __future__ import annotations

import json
import os
import subprocess
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.support.commands import clean_environment
from tests.ports import free_port
from tests.unit.documents import ROOT, blocks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]
LEFT_OUT = ("python3 -m venv", ". env/bin/activate", "pip install", "scripts/demo")  # installed, or tested elsewhere


def play(page: str, folder: Path, port: int) -> str:
    """Run a page from top to bottom in a folder, in one shell, and return its output.

    The software that the page installs is installed already, and the port is replaced.
    """
    commands = ["set -e", "trap 'kill $(jobs -p) 2>/dev/null || :' EXIT"]  # nothing runs after a failed command
    for block in blocks(page):
        if block.title:
            (folder / block.title).write_text(block.code, encoding="utf-8")
        elif block.language == "bash":
            commands += [line for line in block.code.splitlines() if not line.startswith(LEFT_OUT)]
    script = "\n".join(commands).replace("127.0.0.1:9092", f"127.0.0.1:{port}")
    done = subprocess.run(
        ["bash", "-c", script.replace("scripts/kafka", str(ROOT / "scripts/kafka"))],
        cwd=folder,
        env=environment(folder, port),
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def environment(folder: Path, port: int) -> dict[str, str]:
    foreign = clean_environment()
    return foreign | {
        "PYTHONPATH": str(ROOT),
        "PATH": f"{ROOT / '.venv/bin'}:{os.environ['PATH']}",
        "KAFKA_PORT": str(port),
        "KAFKA_DATA_DIR": str(folder / "broker"),
        "WORKER_HTTP_PORT": str(free_port()),
        "WORKER_PROCESSES": "1",
    }


@pytest.fixture
def port(tmp_path: Path) -> Iterator[int]:
    """Yield a port for the tutorial's broker. Stop the broker, even if the tutorial fails in the middle."""
    number = free_port()
    yield number
    subprocess.run([ROOT / "scripts/kafka", "down", "--purge"], env=environment(tmp_path, number), check=True)


def answers(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines() if line.startswith('{"')]


def test_the_tutorial_of_the_first_task_works(tmp_path: Path, port: int) -> None:
    """The page shows two greetings and a dead-lettered request."""
    shown = answers(play("docs/tutorial/first-task.md", tmp_path, port))

    assert sorted((one["outcome"], one.get("result") or "") for one in shown) == [
        ("DEAD_LETTERED", ""),
        ("OK", "Hello, Ada!"),
        ("OK", "Hello, Grace!"),
    ]


def test_the_commands_of_the_readme_work(tmp_path: Path, port: int) -> None:
    """They greet two people."""
    shown = answers(play("README.md", tmp_path, port))

    assert sorted(one["result"] for one in shown) == ["Hello, Ada!", "Hello, Grace!"]


def test_the_tutorial_of_images_works(tmp_path: Path, port: int) -> None:
    """Twelve images become tiles, and the file that is not an image becomes a dead letter."""
    printed = play("docs/tutorial/images.md", tmp_path, port)

    assert "12 images cut, 1 failed" in printed
    assert "DEAD_LETTERED: Reject: not an image" in printed
    assert len(list((tmp_path / "tiles").glob("*/index.json"))) == 12
    assert (tmp_path / "tiles/index.html").read_text().count("<img") == 12


def test_the_tutorial_of_a_real_job_works(tmp_path: Path, port: int) -> None:
    """It has thirty-eight images at first, one more after the replay, and one file that is not an image."""
    printed = play("docs/tutorial/a-real-job.md", tmp_path, port)

    outcomes = [one["outcome"] for one in answers((tmp_path / "answers.jsonl").read_text())]
    assert (outcomes.count("OK"), outcomes.count("DEAD_LETTERED")) == (38, 2)
    assert [one["attempts"] for one in answers(printed)] == [3]
    assert len(list((tmp_path / "thumbnails").glob("*.png"))) == 39
