"""A run with Spark 3.5, in a separate environment. ``SPARK_35_PYTHON`` names its interpreter:

``python3 -m venv /tmp/s35; /tmp/s35/bin/pip install -e . pyspark==3.5.3 jinja2 matplotlib 'pandas<3' pyarrow``

Spark fetches the packages of its version. Delta needs 3.5.3 or later.
"""

from __future__ import annotations

import os
import threading
from typing import TYPE_CHECKING

import pytest

from tests.spark.support import responder
from tests.spark.support.programs import program
from tests.spark.support.site import JobSite

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kafka_broker import Broker

ROWS, SECONDS = 200, 400.0
PYTHON = os.environ.get("SPARK_35_PYTHON", "")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(not PYTHON, reason="needs an environment with Spark 3.5, named by SPARK_35_PYTHON")
@pytest.mark.parametrize("table_format", ["parquet", "delta", "iceberg"])
def test_a_run_is_proved(broker: Broker, tmp_path: Path, table_format: str) -> None:
    site = JobSite(broker, tmp_path)
    arguments = (site.bootstrap, site.requests, site.acks, ROWS)
    worker = threading.Thread(target=responder.main, args=arguments, kwargs={"transactional": True}, daemon=True)
    worker.start()
    job = ("--job", "j", "--lake", site.lake, "--table-format", table_format, "--progress", "off")
    table = ("--input", site.table(ROWS), "--id", "id", "--payload", "payload")
    command = [PYTHON, "-m", "pipeline", "run", *job, *table]
    with program(command, {**site.variables(), "PYSPARK_PYTHON": PYTHON}, tmp_path) as running:
        assert '"verdict": "proved"' in running.finish(SECONDS)
    worker.join()
