"""The pipeline under faults: its calls, and a violation of each of its invariants."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from chaos import plan, procutil
from chaos.evidence import Answer, Audit, Call, Evidence
from chaos.messages import job_key, of_job, payload_of, request, sequence_of
from chaos.options import Options
from chaos.pipeline_jobs import ROWS, PipelineJobs, _bronze
from chaos.requests import OTHER_JOB, TABLE_JOB, Item
from tests.chaos.evidence import TOPIC, broken, entry, good

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

KEYS = [job_key(TABLE_JOB, n) for n in range(2)]
COUNTS = {"planned": 2, "answered": 2} | dict.fromkeys(
    ("missing", "duplicate", "duplicate_answers", "dead_letters", "unexpected", "undecodable"), 0
)


def row(number: int) -> Item:
    return Item(number, 0.0, "echo", KEYS[number], request(number, "{}"))


def answered(number: int, offset: int) -> Answer:
    return Answer(TOPIC, (0, offset), "OK", number, KEYS[number], offset + 0.5, "r0")


def with_table(guarantee: str = "exactly-once") -> Evidence:
    """Return a run in which the two rows of the table follow the other requests."""
    g = good(guarantee)
    return replace(
        g,
        options=replace(g.options, features="pipeline"),
        sent={**g.sent, (0, 4): row(0), (0, 5): row(1)},
        answers=[*g.answers, answered(0, 4), answered(1, 5)],
        journal=[*g.journal, *(entry(event, n, n + 0.1) for n in (4, 5) for event in ("start", "end"))],
        committed={0: 6},
        ends={0: 6},
        rows={item.key: item.value or b"" for item in (row(0), row(1))},
        calls=[Call("submit", 4), Call("submit", -9, killed=True), Call("submit", 0), Call("collect", 0, healed=True)],
        collected=[(topic, 0, n) for topic, count in (("answers", 6), ("dead_letters", 1)) for n in range(count)],
        audit=Audit(0, "proved", COUNTS),
    )


# -- the invariants


def row_missing(e: Evidence) -> Evidence:
    return replace(e, sent={record: item for record, item in e.sent.items() if record != (0, 5)})


def row_twice(e: Evidence) -> Evidence:
    return replace(e, sent={**e.sent, (0, 6): row(1)})


def row_changed(e: Evidence) -> Evidence:
    return replace(e, sent={**e.sent, (0, 5): row(1)._replace(value=request(1, "?"))})


def beyond_the_table(e: Evidence) -> Evidence:
    return replace(e, sent={**e.sent, (0, 6): row(1)._replace(key=job_key(TABLE_JOB, 2))})


def not_collected(e: Evidence) -> Evidence:
    return replace(e, collected=e.collected[1:])


def collected_twice(e: Evidence) -> Evidence:
    return replace(e, collected=[*e.collected, e.collected[0]])


def not_audited(e: Evidence) -> Evidence:
    return replace(e, audit=None)


def undecided(e: Evidence) -> Evidence:
    return replace(e, audit=Audit(2, "undecided", COUNTS))


def exit_code_of_another_verdict(e: Evidence) -> Evidence:
    return replace(e, audit=Audit(1, "proved", COUNTS))


def wrong_count(e: Evidence) -> Evidence:
    return replace(e, audit=Audit(0, "proved", {**COUNTS, "answered": 1}))


def proved_although_unanswered(e: Evidence) -> Evidence:
    return replace(e, answers=e.answers[:-1])


def proved_although_answered_twice(e: Evidence) -> Evidence:
    return replace(e, answers=[*e.answers, answered(1, 5)])


def gave_up(e: Evidence) -> Evidence:
    return replace(e, calls=[Call("submit", 1, last="pipeline: it was taken over"), *e.calls])


def unreachable_without_faults(e: Evidence) -> Evidence:
    return replace(e, calls=[*e.calls, Call("collect", 4, healed=True)])


BROKEN: dict[str, tuple[Callable[[Evidence], Evidence], ...]] = {
    "table": (row_missing, row_twice, row_changed, beyond_the_table),
    "audit": (
        *(not_audited, undecided, exit_code_of_another_verdict, wrong_count),
        *(proved_although_unanswered, proved_although_answered_twice),
    ),
    "collected": (not_collected, collected_twice),
    "pipeline": (gave_up, unreachable_without_faults),
}
CASES = [(invariant, breaks) for invariant, several in BROKEN.items() for breaks in several]


@pytest.mark.parametrize("guarantee", ["exactly-once", "at-least-once", "at-most-once"])
def test_a_good_run_breaks_nothing(guarantee: str) -> None:
    assert broken(with_table(guarantee)) == set()


@pytest.mark.parametrize(("invariant", "breaks"), CASES, ids=[f.__name__ for _, f in CASES])
def test_a_broken_invariant_is_found(invariant: str, breaks: Callable[[Evidence], Evidence]) -> None:
    assert invariant in broken(breaks(with_table()))


def test_at_most_once_the_audit_disproves_a_table_with_a_lost_row() -> None:
    e = proved_although_unanswered(with_table("at-most-once"))
    e = replace(e, collected=e.collected[1:])
    assert broken(e) == {"audit"}
    counts = {**COUNTS, "answered": 1, "missing": 1}
    assert broken(replace(e, audit=Audit(1, "disproved", counts))) == set()


# -- the requests


def test_every_other_request_belongs_to_another_job() -> None:
    """Otherwise the audit would count its answer as unexpected."""
    for ordering in ("partition", "key", "unordered"):
        drawn = plan.draw(Options(3, ordering=ordering, mix="requests", features="pipeline"), rights=())
        assert all(of_job(item.key, OTHER_JOB) for item in drawn.items)
    plain = plan.draw(Options(3, mix="requests"), rights=()).items
    assert not any(of_job(item.key, OTHER_JOB) for item in plain)


def test_the_table_has_the_rows_that_the_topic_must_have(tmp_path: Path) -> None:
    jobs = PipelineJobs({}, "run", tmp_path)
    table = [json.loads(line) for line in (tmp_path / "table.jsonl").read_text().splitlines()]
    assert len(table) == len(jobs.rows) == ROWS
    for one, (key, value) in zip(table, jobs.rows.items(), strict=True):
        assert key == f"table/{one['id']:010}".encode()
        assert (sequence_of(value), payload_of(value)) == (one["id"], one["payload"])


def test_bronze_is_read_without_files_of_unfinished_batches(tmp_path: Path) -> None:
    batches = tmp_path / "lake/bronze/topic=answers/query=q"
    jobs = PipelineJobs({}, "run", tmp_path)
    for number, name in enumerate(("batch=0", "batch=1", "_temporary")):
        (batches / name).mkdir(parents=True)
        table = pa.table({"topic": ["answers"], "partition": [0], "offset": [number], "raw": [b""]})
        pq.write_table(table, batches / name / "part-0.snappy.parquet")
        (batches / name / "_rows-1").touch()
    assert sorted(_bronze(jobs._lake)) == [("answers", 0, 0), ("answers", 0, 1)]


# -- the calls


def test_a_command_is_repeated_until_it_succeeds_and_runs_once_without_faults(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = PipelineJobs({}, "run", tmp_path)
    codes = iter([1, -9, 0, 4, 4])

    async def call(command: str, *_: str) -> Call:
        found = Call(command, next(codes), healed=jobs.healed)
        jobs.healed = len(jobs.calls) >= 3  # while the fourth call runs, which is the first collect
        return found

    monkeypatch.setattr(jobs, "_call", call)
    asyncio.run(jobs.work())
    assert [one.command for one in jobs.calls] == ["submit"] * 3 + ["collect"] * 2
    assert [one.healed for one in jobs.calls] == [False] * 4 + [True]


def test_a_command_that_does_not_exist_leaves_a_call_and_no_process(tmp_path: Path) -> None:
    jobs = PipelineJobs({}, "run", tmp_path)
    call = asyncio.run(jobs._call("collekt"))
    assert (call.code, call.killed) == (64, False)
    assert "collekt" in call.last
    assert not jobs.kill(0)


@pytest.mark.parametrize("number", [0, 1])
def test_either_process_of_the_driver_can_be_killed(tmp_path: Path, number: int) -> None:
    jobs = PipelineJobs({}, "run", tmp_path)
    assert not jobs.kill(number)
    driver: Any = procutil.start(["sh", "-c", "sleep 60 & wait $!"], _path(), tmp_path / "log")
    jobs._process = driver
    try:
        end = time.monotonic() + 30
        while len(both := procutil.session(driver.pid)) < 2:
            assert time.monotonic() < end
        assert both[0] == driver.pid
        assert not jobs.connected({1})
        assert jobs.kill(number)
        assert driver.wait(30) == (-signal.SIGKILL if number == 0 else 128 + signal.SIGKILL)
    finally:
        jobs.close()
    while procutil.session(driver.pid):
        assert time.monotonic() < end


def test_the_driver_is_connected_if_one_of_its_processes_is(tmp_path: Path) -> None:
    jobs = PipelineJobs({}, "run", tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        code = f"import socket, time; at = socket.create_connection(('127.0.0.1', {port})); time.sleep(60)"
        jobs._process = procutil.start([sys.executable, "-c", code], _path(), tmp_path / "log")
        try:
            with server.accept()[0]:
                assert jobs.connected({port, 1})
                assert not jobs.connected({1})
        finally:
            jobs.close()
    assert not jobs.connected({port})


def _path() -> dict[str, str]:
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": str(procutil.ROOT)}
