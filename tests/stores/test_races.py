"""Real processes that do the same requests at the same time, and are killed while they do."""

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
    """That many processes, all started at once; dead at the end whatever happened."""
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
    """Each request once: its result, its effect, its offset. Returns who did them."""
    store = SqlStore(url, "group")
    answers = list(store.answers(TOPIC, 0, 10 * count))
    position = store.positions([TOPIC])[TOPIC]
    store.close()
    assert position == count
    assert [each.offset for each in answers] == list(range(count))
    assert effects(url) == list(range(count))
    return {each.result for each in answers}


def test_eight_processes_racing_for_the_same_requests_do_each_once(url: str) -> None:
    """From an empty database on: they also make the tables, and the first row, at once."""
    prepare_effects(url)
    with racers(url, 60, 8) as running:
        for each in running:
            _, complaint = each.communicate(timeout=50)
            assert each.returncode == 0, complaint
    assert len(check(url, 60)) > 1, "one did it all: that was no race"


def test_tables_are_made_once_by_many(url: str) -> None:
    """Nobody fails because somebody else was faster."""
    with racers(url, 0, 8) as running:
        for each in running:
            _, complaint = each.communicate(timeout=50)
            assert each.returncode == 0, complaint


def test_tables_that_are_there_need_no_right_to_make_them(postgres_url: str) -> None:
    """The worker's user may be one who can only read and write rows."""
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


def test_killed_in_the_middle_of_transactions(url: str) -> None:
    """Whatever was under way is there completely or not at all, and the others go on at once."""
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
