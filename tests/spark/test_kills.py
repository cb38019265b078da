"""``kill -9`` of a submit, again and again: driver, JVM and Python workers at once, and each of them alone.

``E2E_LONG=1``: more kills and 200,000 requests.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from pipeline.exactly_once.progress_log import ProgressLog
from pipeline.exactly_once.runs import submit_name
from pipeline.kafka.topics import Topics
from tests.long_form import LONG
from tests.spark.support.programs import Victim, pipeline, program
from tests.spark.support.site import JobSite

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kafka_broker import Broker
    from tests.spark.support.programs import Program

ROWS, KILLS = (200_000, 10) if LONG else (15_000, 1)
STEP = ROWS // ((KILLS + 1) * 4)  # requests between two kills
VICTIMS = (Victim.ALL, Victim.JVM, Victim.DRIVER)
SECONDS = 240.0  # a busy machine takes long to start Spark


def counted(site: JobSite) -> Callable[[], int]:
    """Return a function that counts the requests that are committed by now."""
    topic = Topics(site.kafka).get(site.requests)

    def count() -> int:
        run = site.run()
        if not run or Topics(site.kafka).find(site.kafka.progress_topic) is None:
            return 0
        name = submit_name("j", topic.id, run)
        log = ProgressLog(site.kafka.client_properties(), site.kafka.progress_topic, name)
        return sum(map(len, log.peek().values()))

    return count


def wait_for(count: Callable[[], int], enough: int, running: Program) -> int:
    end = time.monotonic() + SECONDS
    while (there := count()) < enough:
        assert running.running, running.said()[-5_000:]
        assert time.monotonic() < end, f"only {there} of {enough}: {running.said()[-2_000:]}"
    return there


@pytest.mark.slow
@pytest.mark.timeout(1800 if LONG else 600)
def test_no_kill_loses_or_doubles_a_request(broker: Broker, tmp_path: Path) -> None:
    site = JobSite(broker, tmp_path)
    table = ["--input", site.table(ROWS), "--id", "id", "--payload", "payload", "--parts", "6"]
    count, there = counted(site), 0

    def command(master: str) -> list[str]:
        limits = ("--chunk", "100", "--rate", str(ROWS // 10))
        return pipeline("submit", "--job", "j", "--lake", site.lake, "--master", master, *table, *limits)

    for number in range(KILLS):
        with program(command("local[2]"), site.variables(), tmp_path) as running:
            there = wait_for(count, there + STEP, running)
            running.strike(VICTIMS[number % len(VICTIMS)])
    with program(command("local[2,4]"), site.variables(), tmp_path) as running:  # Spark retries a failed task
        there = wait_for(count, there + STEP, running)
        running.strike(Victim.WORKERS)
        assert 0 < there < ROWS, "the kills came too late to show anything"
        assert f'"planned": {ROWS}' in running.finish(SECONDS * 2)
    assert site.sequences() == list(range(ROWS))
