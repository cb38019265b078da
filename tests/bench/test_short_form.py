"""scripts/bench for real, as short as it can be: two workloads on a broker, without the peers that need a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from benchmarks import __main__ as suite
from benchmarks import environments, results
from benchmarks.bench import QUICK
from benchmarks.goals import GOALS, verdicts

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

SHORT = QUICK._replace(backlog=60_000, empty_tasks=20_000, starts=1, everywhere=True)
PEERS = ("arroyo", "parallel-consumer", "Celery", "Dramatiq")


def test_the_short_form_measures_publishes_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "peers")
    monkeypatch.setattr(suite, "KEPT", tmp_path / "docs/benchmarks/results.json")
    monkeypatch.setattr(suite, "DOCUMENT", tmp_path / "docs/benchmarks.md")
    before = {process.pid for process in psutil.Process().children(recursive=True)}

    report, failed = suite.measure(SHORT, ("throughput", "start-up"), "scripts/bench", suite.publish)

    assert not failed
    measured = {verdict.goal for verdict in verdicts(report.figures) if verdict.figure}
    assert measured == {GOALS["bare"], GOALS["simple"], GOALS["start-up"]}
    assert [trouble.split(": ")[:2] for trouble in report.troubles] == [["start-up", name] for name in PEERS]
    assert results.load(suite.KEPT).pieces.keys() == {"throughput", "start-up"}
    text = suite.DOCUMENT.read_text(encoding="utf-8")
    assert "![" in text
    assert all((suite.DOCUMENT.parent / path).is_file() for path in _pictures(text))
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


def _pictures(text: str) -> list[str]:
    return [line.rpartition("(")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]
