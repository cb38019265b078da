"""The whole way with Delta tables instead of plain Parquet: ``E2E_LONG=1``, for that takes a minute or two."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark.support.programs import DRIVER
from tests.spark.support.site import JobSite

if TYPE_CHECKING:
    from tests.kafka_broker import Broker

ROOT = Path(__file__).parents[2]
ROWS = 600


@pytest.mark.slow
@pytest.mark.skipif(os.environ.get("E2E_LONG") != "1", reason="takes a minute or two; E2E_LONG=1 runs it")
def test_the_whole_way_with_delta_tables(broker: Broker, tmp_path: Path) -> None:
    site = JobSite(broker, tmp_path)
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.support.delta_way", site.lake, str(ROWS), site.table(ROWS)],
        env={**os.environ, **site.environment, "SPARK_SUBMIT_OPTS": DRIVER},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-2_000:] + done.stderr[-4_000:]
    found = json.loads(done.stdout.splitlines()[-1])
    operations = found.pop("operations")
    assert found == {"manifest": ROWS, "bronze": ROWS, "places": ROWS, "answers": ROWS}
    assert "OPTIMIZE" in operations
