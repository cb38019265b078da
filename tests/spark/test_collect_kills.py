"""A collect that is killed again and again, and a collect as a service that is asked to stop.

Each moment and each victim occurs once. With ``E2E_LONG=1``, each pair of them occurs, with 200,000 answers.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pipeline.jobs.collect import collect
from tests.long_form import LONG
from tests.spark.support.exchange import Site
from tests.spark.support.programs import Victim, pipeline, program
from tests.spark.test_collect import in_topics, other_reader, places

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker
    from tests.spark.support.programs import Program

KILLS, ANSWERS = (12, 200_000) if LONG else (3, 6_000)
BATCH = ANSWERS // (3 * KILLS)
VICTIMS = (Victim.DRIVER, Victim.JVM, Victim.ALL)
SECONDS = 240.0  # a busy machine takes long to start Spark


def command(site: Site, *arguments: str, master: str = "local[2]") -> list[str]:
    return pipeline("collect", "--job", site.job, "--lake", site.lake, "--master", master, *arguments)


def wait_for(running: Program, condition: Callable[[], bool]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert running.running, running.said()[-5_000:]
        assert time.monotonic() < end, running.said()[-5_000:]
        time.sleep(0.002)


class Lake:
    """The progress of a collect, as seen in its files."""

    def __init__(self, site: Site) -> None:
        self._bronze = Path(site.lake, "bronze", f"topic={site.acks}")
        self._commits = Path(site.lake, "checkpoints", f"job={site.job}", "commits")

    def next_batch(self) -> int:
        """Return the number of the first batch that is not committed."""
        return 1 + max((int(file.name) for file in self._commits.glob("*") if file.name.isdecimal()), default=-1)

    def has(self, batch: int, name: str) -> bool:
        """Return whether the folder of a batch has such a file."""
        return any(self._bronze.glob(f"query=*/batch={batch}/{name}"))


def moments(lake: Lake, batch: int) -> list[Callable[[], bool]]:
    """Return the moments of kills: while a batch is written; after that, mostly before its commit; between batches."""
    return [
        lambda: lake.has(batch, "_temporary") or lake.next_batch() > batch,
        lambda: lake.has(batch, "_SUCCESS"),
        lambda: lake.next_batch() > batch,
    ]


@pytest.mark.slow
@pytest.mark.timeout(3600 if LONG else 1200)
def test_kills_at_the_worst_moments_lose_and_repeat_no_record(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker, tmp_path)
    requested = site.send_requests(range(ANSWERS))
    for part in range(4):
        numbers = range(part * ANSWERS // 4, (part + 1) * ANSWERS // 4)
        site.send(site.acks, [site.answer(n, requested[n]) for n in numbers])
        site.transaction([site.answer(n, requested[n]) for n in numbers[:500]], "abort", f"{part}")
    lake, environment, torn = Lake(site), {**os.environ, **site.environment}, 0
    more = ("--available-now", "--max-offsets", str(BATCH))
    for number in range(KILLS):
        turn, moment = divmod(number, 3)
        batch = lake.next_batch() + turn % 2  # the process's first batch, which may be a torn one, or its second
        with program(command(site, *more), environment, tmp_path) as running:
            wait_for(running, moments(lake, batch)[moment])
            running.strike(VICTIMS[(turn + moment) % 3])
        torn += lake.next_batch() <= batch
    assert torn >= 1, "no kill came between the beginning of a batch and its commit"
    with program(command(site, *more, master="local[2,4]"), environment, tmp_path) as running:
        for _ in range(KILLS // 3):
            batch = lake.next_batch()
            wait_for(running, moments(lake, batch)[0])
            running.strike(Victim.WORKERS)
            wait_for(running, moments(lake, batch)[2])
        running.finish(SECONDS)
    expected = in_topics(site, site.acks)
    assert len(expected) == ANSWERS
    assert places(spark, site) == expected
    assert other_reader(site) == expected


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_service_stops_cleanly_and_the_next_collect_continues(
    spark: SparkSession, broker: Broker, tmp_path: Path
) -> None:
    site = Site(broker, tmp_path)
    requested = site.send_requests(range(2_000))
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(1_500)])
    more = ("--follow", "--trigger", "200ms", "--max-offsets", "200")
    with program(command(site, *more), {**os.environ, **site.environment}, tmp_path) as running:
        wait_for(running, lambda: Lake(site).next_batch() >= 2)
        running.family()[0].terminate()
        said = running.finish(SECONDS)
    assert '"event": "collected"' in said
    assert "Traceback" not in said
    site.send(site.acks, [site.answer(n, requested[n]) for n in range(1_500, 2_000)])
    assert collect(spark, site.collecting()).complete
    assert places(spark, site) == other_reader(site) == in_topics(site, site.acks)
