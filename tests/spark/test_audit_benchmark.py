"""The figures of the benchmark of an audit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from benchmarks.goals import GOALS, verdicts
from benchmarks.spark import audit

if TYPE_CHECKING:
    import pytest

SECONDS = {"planned": 50.0, "shuffled": 70.0}


def test_the_goal_applies_to_shuffled_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def results(_rows: int, _heap: str, order: str, *_: Any) -> list[dict[str, Any]]:
        return [{"audit_seconds": SECONDS[order], "floor_seconds": 10.0, "peak_rss_mib": 1}]

    monkeypatch.setattr(audit, "_results", results)
    figures = audit.run(1_000)
    assert [figure.values for figure in figures if figure.goal] == [(SECONDS["shuffled"],)]
    found = {verdict.goal: verdict.text for verdict in verdicts(figures)}
    assert found[GOALS[audit.GOAL]] == "NOT reached"
