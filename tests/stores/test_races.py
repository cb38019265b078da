"""Real processes that complete the same requests at the same time, and are killed meanwhile."""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import pytest
import sqlalchemy as sa

from tests.stores.support import TOPIC, effects, prepare_effects
from worker.stores.sql import SqlStore

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
Racer = subprocess.Popen[str]


@contextlib.contextmanager
def racers(url: str, count: int, processes: int) -> Iterator[list[Racer]]:
    """Run this number of processes, all started at the same time. Kill them at the end."""
    running = [racer(url, count) for _ in range(processes)]
    try:
        for each in running:
            assert stream(each.stdout).readline() == "ready\n"
        for each in running:
            go(each)
        yield running
    finally:
        for each in running:
            each.kill()
            each.communicate()


def racer(url: str, count: int) -> Racer:
    command = [sys.executable, "-m", "tests.stores.racer", url, str(count)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def go(process: Racer) -> None:
    stream(process.stdin).write("go\n")
    stream(process.stdin).flush()


def stream(given: IO[str] | None) -> IO[str]:
    assert given is not None
    return given


def check(url: str, count: int) -> set[bytes]:
    """Check that each request has one result, one effect and its offset. Return the ids of the processes."""
    store = SqlStore(url, "group")
    answers = list(store.answers(TOPIC, 0, 10 * count))
    position = store.positions([TOPIC])[TOPIC]
    store.close()
    assert position == count
    assert [each.offset for each in answers] == list(range(count))
    assert effects(url) == list(range(count))
    return {each.result for each in answers}


def test_eight_processes_that_race_complete_each_request_once(url: str) -> None:
    """They begin with an empty database, so they also create the tables and the first row at the same time."""
    prepare_effects(url)
    with racers(url, 60, 8) as running:
        for each in running:
            _, complaint = each.communicate(timeout=50)
            assert each.returncode == 0, complaint
    assert len(check(url, 60)) > 1, "one did it all: that was no race"


def test_processes_that_create_the_tables_at_the_same_time_all_succeed(url: str) -> None:
    """No process fails because another one was faster."""
    with racers(url, 0, 8) as running:
        for each in running:
            _, complaint = each.communicate(timeout=50)
            assert each.returncode == 0, complaint


def test_a_store_whose_tables_exist_needs_no_right_to_create_tables(postgres_url: str) -> None:
    """The worker's database user may have no other right than to read and write rows."""
    SqlStore(postgres_url, "group").close()
    engine = sa.create_engine(postgres_url.replace("postgresql:", "postgresql+psycopg:"))
    name = f"poor_{random.randrange(10**9)}"  # users belong to the whole server
    with engine.begin() as connection:
        connection.exec_driver_sql(f"CREATE ROLE {name} LOGIN PASSWORD 'secret'")
        schema = connection.exec_driver_sql("SELECT current_schema()").scalar()
        connection.exec_driver_sql(f"GRANT USAGE ON SCHEMA {schema} TO {name}")
        connection.exec_driver_sql(f"GRANT SELECT, INSERT, UPDATE ON worker_offsets, worker_results TO {name}")
    engine.dispose()
    store = SqlStore(postgres_url.replace("//tests:", f"//{name}:"), "group")
    store.skip(TOPIC, 0)
    assert store.positions([TOPIC]) == {TOPIC: 1}
    store.close()


def test_kills_in_the_middle_of_transactions_lose_and_repeat_no_request(url: str) -> None:
    """A killed transaction is applied completely or not at all, and the other processes continue without a pause."""
    prepare_effects(url)
    count, kills = 250, 0
    with racers(url, count, 3) as running:
        end = time.monotonic() + 45
        while time.monotonic() < end and any(each.poll() is None for each in running):
            time.sleep(random.uniform(0.05, 0.25))
            victim = random.choice(running)
            if kills < 8 and victim.poll() is None:
                victim.kill()
                victim.communicate()
                running.remove(victim)
                running.append(racer(url, count))
                go(running[-1])
                kills += 1
        assert [each.poll() for each in running] == [0, 0, 0]
    assert kills > 2
    check(url, count)
