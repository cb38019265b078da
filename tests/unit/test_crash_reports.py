"""How long a crash report counts."""

from __future__ import annotations

import pytest

from worker.process.crash_reports import CrashReport, valid


@pytest.mark.parametrize(
    ("now", "counts"),
    [(100.0, True), (109.0, True), (99.5, True), (111.0, False), (40.0, False)],  # the last: the clock was set back
)
def test_a_report_counts_for_ten_seconds(now: float, counts: bool) -> None:
    report = CrashReport(100.0, "requests", 0, 5, 1, [("requests", 0)])
    assert valid([report], now) == ([report] if counts else [])
