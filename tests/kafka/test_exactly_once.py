"""Exactly-once: readers of committed records see one answer per request, despite kills and stops of processes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.faults import faulty
from tests.kafka.faults.chaos import Size, busy_site, storm
from tests.kafka.support.replica import kill
from tests.kafka.support.topics import task
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900 if LONG else 240)]

SIZE = Size(5_120, 32) if LONG else Size(600, 6)
WAIT_LIMIT = 300.0 if LONG else 90.0


def finish(one: Site) -> None:
    """Check that each request has one answer, with outcome OK, and that all is committed to the end of the log."""
    one.finish(seconds=WAIT_LIMIT)
    assert {answer.outcome for answer in one.answers.records} == {"OK"}


def chaos_under_the_consumer_protocol(site: Callable[..., Site]) -> None:
    one = busy_site(site, "exactly-once", "consumer")
    storm(one, SIZE, seed=1)
    finish(one)


def chaos_under_the_classic_protocol(site: Callable[..., Site]) -> None:
    """The ordering is ``unordered``, and the first attempt of a tenth of the requests fails."""
    one = busy_site(site, "exactly-once", "classic", WORKER_ORDERING="unordered")
    storm(one, SIZE, seed=2, retries=0.1)
    finish(one)


def chaos_with_order_by_key(site: Callable[..., Site]) -> None:
    one = busy_site(site, "exactly-once", "consumer", WORKER_ORDERING="key")
    storm(one, SIZE, seed=3, retries=0.1)
    finish(one)


def a_task_may_outlast_the_transaction_timeout(site: Callable[..., Site]) -> None:
    """The transaction begins after the handler has returned. The long form uses the default time-out (10 s)."""
    variables = {} if LONG else {"KAFKA_CONFIG_TRANSACTION_TIMEOUT_MS": "3000"}
    seconds = 35 if LONG else 12
    one = faulty.small_site(site, "exactly-once", **variables)
    one.submit(task(n, f'{{"do": "nap", "seconds": {seconds}}}', partition=n % 2) for n in range(2))
    one.submit(task(n, "go", partition=n % 2) for n in range(2, 6))
    replica = one.start()
    finish(one)
    one.started_once()
    assert not replica.events("transaction.aborted"), replica.tail()


def answers_above_a_waiting_request_survive_a_kill(site: Callable[..., Site]) -> None:
    """The first request waits for its second attempt. Those behind it are answered, and do not start again."""
    sites = [faulty.small_site(site, "exactly-once", WORKER_ORDERING=ordering) for ordering in ("key", "unordered")]
    for one in sites:
        one.submit([task(0, '{"do": "retry_until", "attempt": 2, "after": 600}', partition=0)])
        one.submit(task(n, "go", partition=0) for n in range(1, 40))
        one.start()
    for one in sites:
        one.wait_answered(one.sent[1:])
        assert one.committed() == {}
        kill(one.replicas[0].pids())
    for one in sites:
        finish(one)
        starts = one.journal.starts()
        assert starts.pop((0, 0)) == 2
        assert set(starts.values()) == {1}, one.tails()


SCENARIOS = [
    chaos_under_the_consumer_protocol,
    chaos_under_the_classic_protocol,
    *([chaos_with_order_by_key] if LONG else []),
    a_task_may_outlast_the_transaction_timeout,
    answers_above_a_waiting_request_survive_a_kill,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_exactly_once(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
