"""The broker of a test run reports how it ended: see tests/kafka_broker.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka_broker import SharedBroker

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]


def test_a_broker_that_ended_before_the_tests_is_reported(tmp_path: Path) -> None:
    shared = SharedBroker(tmp_path)
    assert shared.end() == ""  # it was never started
    broker = shared.start()
    assert broker.lost() == ""
    with (broker.folder / "broker.console").open("a") as console:
        console.write("Terminating due to java.lang.OutOfMemoryError: Java heap space\n")
    broker.script("kill")
    log = (broker.folder / "broker.log").read_text()
    title, error, *_, last = shared.end().splitlines()
    assert title.startswith(f"The broker on {broker.bootstrap} ended before the tests.")
    assert error.endswith("OutOfMemoryError: Java heap space")
    assert last in log
    assert not broker.folder.exists()
    assert shared.end() == ""
