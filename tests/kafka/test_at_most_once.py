"""At-most-once: no task starts twice, and lost tasks are counted and named."""

from __future__ import annotations

import json
import os
import signal
from typing import TYPE_CHECKING

import pytest

from tests.kafka.faults import faulty
from tests.kafka.faults.chaos import Size, busy_site, storm
from tests.kafka.support.topics import ends, task
from tests.kafka.support.waiting import until
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600 if LONG else 240)]

SIZE = Size(3_000, 30) if LONG else Size(500, 10)


def unanswered(one: Site) -> set[tuple[int, int]]:
    """Return partition and offset of the requests without an answer so far."""
    return {sent[1:3] for sent in one.sent} - {origin[1:] for origin in one.counts()}


def prove(one: Site) -> None:
    """Check that all is committed, no task started twice, and every request without an answer is named as lost."""
    # Under this guarantee, a committed request may not have run yet.
    until(lambda: unanswered(one) <= faulty.named_as_lost(one), one.tails)
    one.wait_committed()
    one.stop()
    one.answers.read_all()
    assert set(one.journal.starts().values()) == {1}, one.tails()
    assert set(one.counts().values()) == {1}, "answered more than once"
    assert unanswered(one), "nothing was lost, so nothing was shown"
    assert unanswered(one) <= faulty.named_as_lost(one), one.tails()
    assert one.committed() == ends(one.bootstrap, one.requests)


def lose(one: Site) -> None:
    """Kill a process in the middle of a task. The faults of the storm may have come only between tasks."""
    (sent,) = one.submit([task(SIZE.tasks, json.dumps({"do": "nap", "seconds": 120}))])
    pid: int = until(lambda: one.journal.running().get(sent[1:3]), one.tails)
    os.kill(pid, signal.SIGKILL)


def kills_lose_tasks_and_start_none_twice(site: Callable[..., Site]) -> None:
    one = busy_site(site, "at-most-once", "consumer")
    storm(one, SIZE, seed=4, stops=False)
    lose(one)
    until(lambda: unanswered(one) <= faulty.named_as_lost(one), one.tails)
    until(
        lambda: faulty.lost(one) == len(faulty.times_named(one)),
        lambda: f"{faulty.lost(one)} counted, {len(faulty.times_named(one))} named\n{one.tails()}",
    )
    prove(one)


def kills_and_stops_without_an_order(site: Callable[..., Site]) -> None:
    """Under the classic protocol, a stopped process continues and finds that its partitions have another owner."""
    one = busy_site(site, "at-most-once", "classic", WORKER_ORDERING="unordered")
    storm(one, SIZE, seed=5)
    lose(one)
    prove(one)


SCENARIOS = [kills_lose_tasks_and_start_none_twice, kills_and_stops_without_an_order]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_at_most_once(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
