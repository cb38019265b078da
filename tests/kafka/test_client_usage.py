"""Users of ``worker.Client``: the commands that wait for answers, and the code of docs/client.md."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import json
import re
import subprocess
import sys
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

import worker
from tests.kafka.support.clients import WAIT_LIMIT
from tests.kafka.support.commands import clean_environment
from tests.kafka.support.replica import ROOT
from worker.client.ids import TaskId

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from fastapi import FastAPI

    from tests.kafka.support.site import Site

pytestmark = pytest.mark.kafka


# ---------------------------------------------------------------- the command line


def command(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = clean_environment()
    return subprocess.run(
        [sys.executable, "-m", "worker", *arguments],
        env={**inherited, **site.environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=WAIT_LIMIT,
        check=False,
    )


def test_wait_finds_the_answers_to_earlier_requests(running: Site, tmp_path: Path) -> None:
    """It takes the ids that ``submit`` wrote, or the name of the job, and can be repeated."""
    ids, job = tmp_path / "ids", f"job-{time.time_ns()}"
    sent = command(running, "submit", "a", "b", '{"do": "fail"}', "--job", job, "--ids", str(ids))
    by_file = command(running, "wait", "--file", str(ids), "--output", "-", "--timeout", "30s")
    by_job = command(running, "wait", "--job", job, "--timeout", "30s", "--expect-ok")

    assert (sent.returncode, by_file.returncode, by_job.returncode) == (0, 0, 1)
    found = sorted((json.loads(line) for line in by_file.stdout.splitlines()), key=lambda one: str(one.get("result")))
    assert [(one["outcome"], one.get("result"), one.get("error")) for one in found] == [
        ("DEAD_LETTERED", None, {"type": "ValueError", "message": "as told"}),
        ("OK", "a", None),
        ("OK", "b", None),
    ]
    assert {one["id"] for one in found} == set(ids.read_text().split())
    assert "3 of 3 requests answered: 2 OK, 1 DEAD_LETTERED" in by_job.stderr


def test_wait_names_an_unanswered_request(quiet: Site) -> None:
    """Its exit code is then 1."""
    with worker.Client(quiet.environment) as client:
        task_id = TaskId.parse(client.submit("x").id)

    done = command(quiet, "wait", str(task_id), "--timeout", "500ms")

    assert done.returncode == 1
    assert "0 of 1 requests answered: none" in done.stderr
    assert f"1 unanswered: {task_id.origin}" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["wait"], "either as arguments, or with --file, or with --job"),
        (["wait", "nonsense"], "'nonsense' is no id of a request"),
        (["wait", "--job", "nobody"], "nothing to wait for"),
        (["answer"], "Missing argument"),
    ],
)
def test_wrong_use_ends_in_a_line(quiet: Site, arguments: list[str], reason: str) -> None:
    done = command(quiet, *arguments)

    assert done.returncode == 2
    assert reason in done.stderr
    assert "Traceback" not in done.stderr


def test_answer_prints_all_answers_of_the_keys(running: Site) -> None:
    """A key without an answer is named, with exit code 1."""
    mine, other = f"mine-{time.time_ns()}", f"other-{time.time_ns()}"
    with worker.Client(running.environment) as client:
        futures = [client.submit("1", key=mine), client.submit("2", key=mine), client.submit("3", key=other)]
        concurrent.futures.wait(futures, WAIT_LIMIT)

    both = command(running, "answer", mine, other)
    one = command(running, "answer", mine, "nobody", "--since", "10m")

    assert (both.returncode, one.returncode) == (0, 1)
    assert sorted(json.loads(line)["result"] for line in both.stdout.splitlines()) == ["1", "2", "3"]
    assert [(json.loads(line)["key"], json.loads(line)["result"]) for line in one.stdout.splitlines()] == [
        (mine, "1"),
        (mine, "2"),
    ]
    assert f"nobody: no answer in {running.ack}" in one.stderr


# ---------------------------------------------------------------- the documentation


@pytest.fixture
def page(running: Site, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Run all Python code of docs/client.md from top to bottom, and return the names that it defines."""
    for name, value in running.environment.items():
        monkeypatch.setenv(name, value)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "client.md").read_text(encoding="utf-8"), re.DOTALL)
    namespace: dict[str, Any] = {"__name__": "client.md"}
    for block in blocks:
        exec(compile(block, "client.md", "exec", dont_inherit=True), namespace)
    return namespace


def test_the_code_of_the_page_gets_the_results(page: dict[str, Any]) -> None:
    assert page["results"] == [f"item {number}".encode() for number in range(1000)]
    assert [page["first"], *page["rest"]] == [b"item 0", b"item 1", b"item 2"]


def test_the_web_backend_of_the_page_finds_results_after_a_restart(page: dict[str, Any]) -> None:
    """It finds them by their ids. Failures and invalid ids have different responses."""
    payloads = "hello", '{"do": "nap", "seconds": 2.5}', '{"do": "fail", "kind": "Reject", "text": "never"}'

    async def browse() -> list[httpx.Response]:
        async with backend(page["app"]) as browser:
            submitted = [await browser.post("/tasks", json={"payload": payload}) for payload in payloads]
        assert [response.status_code for response in submitted] == [202] * 3
        async with backend(page["app"]) as browser:
            addresses = [f"/tasks/{response.json()['id']}" for response in submitted]
            return [await until_done(browser, address) for address in [*addresses, "/tasks/nonsense"]]

    done, waited, failed, wrong = asyncio.run(browse())

    assert done.json() == {"state": "done", "result": "hello"}
    assert waited.json()["state"] == "done"
    assert failed.json() == {"state": "dead_lettered", "error": "Reject: never"}
    assert wrong.status_code == 404


async def until_done(browser: httpx.AsyncClient, address: str) -> httpx.Response:
    while (response := await browser.get(address)).json() == {"state": "waiting"}:
        assert response.status_code == 202
    return response


@contextlib.asynccontextmanager
async def backend(app: FastAPI) -> AsyncIterator[httpx.AsyncClient]:
    """Start a backend, yield a browser for it, and end the backend afterwards."""
    transport = httpx.ASGITransport(app)
    async with app.router.lifespan_context(app), httpx.AsyncClient(transport=transport, base_url="http://test") as made:
        yield made
