"""Rate and remaining time, and the lines of ``worker status --watch``."""

from __future__ import annotations

import pytest

from worker.cli.progress import WINDOW, Look, Progress
from worker.cli.status_watch import line

LOOK = {
    "time": "2026-01-01T00:00:00+00:00",
    "lag": 120,
    "rate": 40.0,
    "remaining_seconds": 3.2,
    "errors": {"ProcessDied": 1, "ValueError": 3},
    "running": [{}, {}],
}


def after(*looks: tuple[float, int, int]) -> Progress:
    progress = Progress()
    for look in looks:
        progress.add(Look(*look))
    return progress


def test_rate_and_remaining_time_follow_from_two_looks() -> None:
    progress = after((0.0, 100, 60), (2.0, 120, 40))
    assert (progress.rate, progress.remaining) == (10.0, 4.0)


@pytest.mark.parametrize(
    ("looks", "rate", "remaining"),
    [
        ([(0.0, 100, 60)], None, None),
        ([(0.0, 100, 60), (2.0, 100, 60)], 0.0, None),
        ([(0.0, 100, 60), (2.0, 90, 60)], -5.0, None),
        ([(0.0, 100, 0)], None, 0.0),
    ],
)
def test_a_rate_or_a_remaining_time_that_cannot_be_known_is_none(
    looks: list[tuple[float, int, int]], rate: float | None, remaining: float | None
) -> None:
    """This is so before the second look, without progress, and after a topic was recreated. Without lag, 0 s remain."""
    progress = after(*looks)
    assert (progress.rate, progress.remaining) == (rate, remaining)


def test_the_rate_is_measured_over_the_last_minute() -> None:
    progress = after((0.0, 0, 900), (WINDOW, 0, 900), (2 * WINDOW, 600, 300))
    assert progress.rate == 10.0


def test_a_look_is_printed_as_one_line() -> None:
    assert line(LOOK) == (
        "2026-01-01T00:00:00+00:00 lag 120, 40/s, done in about 3 s, 2 running; "
        "new dead letters: 3 ValueError, 1 ProcessDied"
    )
    assert "done in about 2.2 h," in line({**LOOK, "remaining_seconds": 8000.0})
    assert "done in about 2.5 min," in line({**LOOK, "remaining_seconds": 150.0})
    assert line({**LOOK, "rate": None, "remaining_seconds": None, "errors": {}}).endswith(
        "lag 120, rate unknown, no estimate, 2 running; new dead letters: none"
    )
