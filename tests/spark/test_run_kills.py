"""``pipeline run`` is interrupted, and its second call is killed. The third call continues, and proves the job.

``E2E_LONG=1`` runs it.
"""

from __future__ import annotations

import json
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.parquet as pq
import pytest

from tests.kafka.support.waiting import until
from tests.long_form import long_only
from tests.spark.support import responder
from tests.spark.support.programs import Victim, pipeline, program
from tests.spark.support.site import JobSite

if TYPE_CHECKING:
    from tests.kafka_broker import Broker

ROWS = 60
SECONDS = 240.0


@pytest.mark.slow
@pytest.mark.timeout(900)
@long_only
def test_a_run_that_was_interrupted_and_killed_continues(broker: Broker, tmp_path: Path) -> None:
    site = JobSite(broker, tmp_path)
    table = ("--input", site.table(ROWS), "--id", "id", "--payload", "payload")
    command = pipeline("run", "--job", "j", "--lake", site.lake, *table)

    with program(command, site.variables(), tmp_path) as running:
        until(lambda: len(site.sequences()) == ROWS, running.said, SECONDS)
        running.family()[0].send_signal(signal.SIGINT)
        assert running.end(SECONDS) == 130
        assert "interrupted" in running.said()
    answer = threading.Thread(
        target=responder.main, args=(site.bootstrap, site.requests, site.acks, ROWS), kwargs={"transactional": True}
    )
    with program(command, site.variables(), tmp_path) as running:
        # Killed before the answers come: the checkpoint exists, and the job has no verdict.
        until(lambda: list(Path(site.lake).glob("checkpoints/job=j/metadata")), running.said, SECONDS)
        running.strike(Victim.ALL)
    assert not list(Path(site.lake).glob("audit/job=j/audit.json"))
    answer.start()
    with program(command, site.variables(), tmp_path) as running:
        running.finish(SECONDS)
    answer.join()
    found = json.loads((Path(site.lake) / "audit/job=j/audit.json").read_text())
    assert (found["verdict"], found["answered"]) == ("proved", ROWS)
    assert site.sequences() == list(range(ROWS)), "each request was sent once"
    bronze = pq.read_table(f"{site.lake}/bronze/topic={site.acks}", columns=["partition", "offset"])
    assert bronze.num_rows == ROWS


@pytest.mark.timeout(600)
def test_an_interrupt_stops_a_run_while_it_submits(broker: Broker, tmp_path: Path) -> None:
    site = JobSite(broker, tmp_path)
    table = ("--input", site.table(ROWS), "--id", "id", "--payload", "payload", "--rate", "2")
    command = pipeline("run", "--job", "j", "--lake", site.lake, *table)
    with program(command, site.variables(), tmp_path) as running:
        until(lambda: bool(site.sequences()), running.said, SECONDS)
        running.family()[0].send_signal(signal.SIGINT)
        assert running.end(SECONDS) == 130
    assert len(site.sequences()) < ROWS
