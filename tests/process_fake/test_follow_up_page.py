"""The programs of docs/how-to/follow-ups.md do what the page says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

from tests.unit.documents import ROOT, blocks
from tests.unit.test_pytest_plugin import installed
from worker.codec import decode_request
from worker.testing import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

PAGE = "docs/how-to/follow-ups.md"
PROGRAMS = {block.title: block.code for block in blocks(PAGE) if block.title}


def handler_of(title: str) -> Callable[..., object]:
    names: dict[str, Any] = {"__name__": title}
    exec(compile(PROGRAMS[title], title, "exec"), names)
    handler: Callable[..., object] = names["handle"]
    return handler


def test_a_chain_has_an_answer_for_each_stage_under_one_key() -> None:
    with Cluster() as cluster:
        cluster.start(handler_of("chain.py"), guarantee="exactly-once")
        cluster.submit('{"stage": "fetch", "page": 7}', key=b"page-7")
        answers = cluster.answers(2)
    assert sorted((answer.key, answer.result) for answer in answers) == [
        (b"page-7", b"fetched"),
        (b"page-7", b'{"words":2}'),
    ]


def test_parts_fan_out_and_fan_in(tmp_path: Path) -> None:
    database = str(tmp_path / "done.db")
    with Cluster() as cluster:
        for topic in ("parts", "bound"):
            cluster.broker.create(topic, 2)
        process = cluster.start(handler_of("fan_out.py"))
        cluster.submit('{"book": "Emma", "parts": 5}')
        cluster.answers(1)
        process.drain()
        parts = [decode_request(record.value).payload for record in cluster.broker.records("parts")]
        cluster.until(lambda: process.ended)
        cluster.start(handler_of("fan_in.py"), kwargs={"database": database})
        for part in [*parts, parts[0]]:  # one part comes twice
            cluster.submit(part)
        assert {answer.outcome for answer in cluster.answers()} == {"OK"}
        bound = [json.loads(decode_request(record.value).payload) for record in cluster.broker.records("bound")]
    assert [json.loads(part)["part"] for part in sorted(parts)] == [0, 1, 2, 3, 4]
    assert bound in ([{"book": "Emma"}], [{"book": "Emma"}] * 2)


def test_the_test_of_the_page_passes(tmp_path: Path) -> None:
    installed(tmp_path)
    for title in ("chain.py", "test_chain.py"):
        (tmp_path / title).write_text(PROGRAMS[title], encoding="utf-8")
    options = ("-p", "no:cacheprovider", "--rootdir", str(tmp_path))
    command = [sys.executable, "-m", "pytest", "-q", *options, "test_chain.py"]
    environment = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    run = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert "1 passed" in run.stdout, run.stdout + run.stderr
