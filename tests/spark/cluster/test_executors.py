"""A standalone cluster with ``spark-submit``: executors are killed in mid-submit, and no request is lost or doubled.

``E2E_LONG=1`` runs it: starting a cluster takes long on two cores.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.long_form import long_only
from tests.spark.cluster.standalone import standalone
from tests.spark.support import responder
from tests.spark.support.programs import kill, program
from tests.spark.support.site import JobSite
from tests.spark.test_kills import counted, wait_for

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_broker import Broker

ROWS, KILLS, RATE = 200_000, 5, 5_000
SECONDS = 240.0


pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(600),
    long_only,
]


def test_killed_executors_lose_and_double_no_request(broker: Broker, tmp_path: Path) -> None:
    site = JobSite(broker, tmp_path)
    arguments = ("submit", "--job", "j", "--lake", site.lake, "--input", site.table(ROWS), "--id", "id")
    options = ("--payload", "payload", "--parts", "8", "--chunk", "100", "--rate", str(RATE))
    with standalone(tmp_path) as cluster:
        environment = {**cluster.environment, **site.environment}
        command = cluster.submit(tmp_path, *arguments, *options)
        count, there = counted(site), 0
        with program(command, environment, tmp_path) as running:
            for number in range(KILLS):
                there = wait_for(count, there + ROWS // (KILLS * 3), running)
                # After earlier kills, both executors may be gone. A new one must start before the next kill.
                while not cluster.executors():
                    time.sleep(0.1)
                assert kill(cluster.executors()[:1]) == 1, number
            assert there < ROWS, "the kills came too late to show anything"
            assert f'"planned": {ROWS}' in running.finish(SECONDS)
    assert site.sequences() == list(range(ROWS))


def test_the_exit_code_of_an_audit_reaches_the_caller_of_spark_submit(broker: Broker, tmp_path: Path) -> None:
    site = JobSite(broker, tmp_path)
    with standalone(tmp_path) as cluster:
        environment = {**cluster.environment, **site.environment}

        def run(command: str, *options: str) -> int:
            arguments = cluster.submit(tmp_path, command, "--job", "j", "--lake", site.lake, *options)
            with program(arguments, environment, tmp_path) as running:
                return running.end(SECONDS)

        table = ("--input", site.table(10), "--id", "id", "--payload", "payload")
        assert run("submit", *table) == 0
        assert run("audit") == 1, "no request was answered"
        responder.main(site.bootstrap, site.requests, site.acks, 10, transactional=True)
        assert run("audit") == 2, "the answers are not collected"
        assert run("collect", "--available-now") == 0
        assert run("audit") == 0
