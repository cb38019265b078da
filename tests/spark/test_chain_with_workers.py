"""Three stages of real workers, killed again and again: every stage is proved. ``E2E_LONG=1`` runs it."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING

import pytest

from pipeline.audit.result import Verdict
from tests.kafka.support.replica import Replica, kill
from tests.kafka.support.waiting import until
from tests.long_form import long_only
from tests.spark.support.exchange import Site
from tests.spark.test_chain import audited, job_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from tests.kafka_broker import Broker

ROWS, KILLS = 600, 9
SECONDS = 180.0


class Stage:
    """The workers of a stage, which send its results to the request topic of the next stage."""

    def __init__(self, site: Site, next_topic: str, folder: Path) -> None:
        self.site, self._folder, self.kills = site, folder, 0
        self._environment = {
            **site.environment,
            "KAFKA_CONSUMER_GROUP_ID": f"group-{site.requests}",
            "WORKER_HANDLER": "relay:handle",
            "WORKER_HANDLER_KWARGS": json.dumps({"topic": next_topic}),
            "WORKER_GUARANTEE": "exactly-once",
            "WORKER_MAX_ATTEMPTS": "20",
            "WORKER_PROCESSES": "2",
        }
        self.start()

    def start(self) -> None:
        self._replica = Replica(self._folder, self._environment)

    def wait_ready(self) -> None:
        self._replica.wait_ready()

    def answered(self) -> int:
        return len(self.site.committed(self.site.acks))

    def strike(self) -> None:
        """Kill a worker process; every third time the whole replica, and start another."""
        self.kills += 1
        if self.kills % 3:
            kill([until(self._replica.pids, self._replica.tail)[0]])
        else:
            self._replica.clean_up()
            self.start()

    def stop(self) -> None:
        self._replica.clean_up()


@pytest.fixture
def stages(broker: Broker, tmp_path: Path) -> Iterator[list[Stage]]:
    sites = [Site(broker, tmp_path, job) for job in ("fetch", "count", "store")]
    topics = [*(site.requests for site in sites[1:]), ""]
    for site in sites:
        broker.shorten_sessions(f"group-{site.requests}")
    with contextlib.ExitStack() as running:
        made = []
        for site, topic in zip(sites, topics, strict=True):
            made.append(Stage(site, topic, tmp_path))
            running.callback(made[-1].stop)
        for stage in made:
            stage.wait_ready()
        yield made


@pytest.mark.slow
@pytest.mark.timeout(1200)
@long_only
def test_three_stages_are_proved_although_their_workers_are_killed(spark: SparkSession, stages: list[Stage]) -> None:
    last = stages[-1]
    job = job_of(spark, stages[0].site)
    table = spark.range(ROWS).selectExpr("id", "concat('a ', id) as payload")
    job.plan(table, id="id", payload="payload")
    job.submit()
    for number in range(1, KILLS + 1):
        stages[number % len(stages)].strike()
        until(lambda: last.answered() >= number * ROWS // KILLS, lambda: f"{last.answered()} answers", SECONDS)  # noqa: B023 - called at once
    before = None
    for stage in stages:
        proved = audited(spark, stage.site, after=before, wait=60.0)
        assert (proved.verdict, proved.counts.planned) == (Verdict.PROVED, ROWS), proved.reasons
        before = stage.site.job
