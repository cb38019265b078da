"""The shortest real run of scripts/bench: two workloads on a broker, without the peers that need a download."""

from __future__ import annotations

from typing import TYPE_CHECKING

import psutil
import pytest

from benchmarks import __main__ as suite
from benchmarks import environments, results
from benchmarks.bench import QUICK
from benchmarks.goals import GOALS, verdicts
from benchmarks.names import PEERS
from tests.long_form import long_only

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

SHORT = QUICK._replace(backlog=60_000, empty_tasks=20_000, peers=True)


def test_the_short_form_measures_and_publishes_and_leaves_no_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environments, "FOLDER", tmp_path / "peers")
    monkeypatch.setattr(suite, "RESULTS", tmp_path / "docs/benchmarks/results.json")
    monkeypatch.setattr(suite, "DOCUMENT", tmp_path / "docs/benchmarks.md")
    before = {process.pid for process in psutil.Process().children(recursive=True)}

    report, failed = suite.measure(SHORT, ("throughput", "start-up"), "scripts/bench", suite.publish)

    assert not failed
    measured = {verdict.goal for verdict in verdicts(report.figures) if verdict.figure}
    assert measured == {GOALS["bare"], GOALS["start-up"]}
    assert [failure.split(": ")[:2] for failure in report.failures] == [["start-up", name] for name in PEERS]
    assert results.load(suite.RESULTS).sections.keys() == {"throughput", "start-up"}
    pages = [suite.DOCUMENT, suite.DOCUMENT.with_stem("benchmarks-figures")]
    pictures = [path for page in pages for path in _pictures(page.read_text(encoding="utf-8"))]
    assert pictures
    assert all((suite.DOCUMENT.parent / path).is_file() for path in pictures)
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


def _pictures(text: str) -> list[str]:
    return [line.rpartition("(")[2].rstrip(")") for line in text.splitlines() if line.startswith("![")]


@long_only
def test_the_workloads_without_peers_are_measured() -> None:
    """They are short tasks behind a long one, scale-out in mid-task, a crash, a limit, the client, and chains."""
    names = ("short-behind-long", "scale-out", "crash-segfault", "time-limit", "client", "chains")

    report, failed = suite.measure(QUICK, names, "scripts/bench", lambda _report: None)

    assert not failed, report.failures
    medians = {(figure.workload, figure.quantity.rpartition(", ")[2]): figure.median for figure in report.figures}
    assert medians["short-behind-long", "p50"] <= medians["short-behind-long", "p95"]
    assert medians["short-behind-long", "p95"] <= medians["short-behind-long", "last"]
    assert medians["scale-out", "second replica started in mid-task: answered twice"] == 0
    assert {workload for workload, _ in medians} == set(names)
    assert all(figure.median > 0 for figure in report.figures if figure.unit == "s")
