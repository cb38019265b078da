"""When offsets are committed, and how far."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from tests.kafka.support.replica import metric
from tests.kafka.support.topics import Sent, ends, task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

NAP = '{"do": "nap", "seconds": 0.1}'
TASKS = 60


def transact(one: Site, count: int, partition: int, *, commit: bool = True) -> None:
    """Send ``count`` requests in one transaction, and commit or abort it. Aborted requests do not count as sent."""
    settings = {"bootstrap.servers": one.bootstrap, "transactional.id": f"{one.group}-submitter", "log_level": 2}
    producer = Producer(settings)
    producer.init_transactions(30)
    producer.begin_transaction()
    ours: list[int] = []
    for number in range(count):
        made = task(number, "go")
        producer.produce(one.requests, made.value, made.key, partition, lambda _, m: ours.append(m.offset() or 0))
    assert producer.flush(30) == 0
    if commit:
        producer.commit_transaction(30)
        first = min(ours)
        one.sent += [_sent(one, partition, first + number) for number in range(count)]
    else:
        producer.abort_transaction(30)


def _sent(one: Site, partition: int, offset: int) -> Sent:
    return Sent(one.requests, partition, offset, task(0, "go"))


def wait_committed(one: Site, expected: dict[int, int], seconds: float = 90) -> None:
    """Wait until the group has committed these offsets."""
    until(lambda: one.committed() == expected, lambda: f"{one.committed()}\n{one.tails()}", seconds)


def lag_reaches_zero_behind_transaction_markers(site: Callable[..., Site]) -> None:
    """Partitions end with a committed or an aborted transaction, or have only an aborted one. More follow later."""
    one = site(partitions=4, WORKER_PROCESSES="2")
    transact(one, 5, 0)
    transact(one, 5, 1)
    transact(one, 5, 1, commit=False)
    transact(one, 5, 2, commit=False)
    transact(one, 5, 2)
    transact(one, 5, 3, commit=False)
    expected = {0: 6, 1: 12, 2: 12, 3: 6}
    until(lambda: ends(one.bootstrap, one.requests) == expected, lambda: f"{ends(one.bootstrap, one.requests)}")
    one.start().wait_ready()
    wait_committed(one, expected)
    transact(one, 1, 0, commit=False)
    transact(one, 1, 3)
    wait_committed(one, {0: 8, 1: 12, 2: 12, 3: 8})
    one.finish()
    one.started_once()


def lag_reaches_zero_under_every_guarantee(site: Callable[..., Site]) -> None:
    sites = [site(partitions=1, WORKER_GUARANTEE=guarantee) for guarantee in ("exactly-once", "at-most-once")]
    for one in sites:
        transact(one, 3, 0)
        transact(one, 3, 0, commit=False)
        one.start()
    for one in sites:
        wait_committed(one, {0: 8})
        one.finish()
        one.started_once()


def commits(one: Site) -> int:
    """Return the number of commits that a new replica needs for the tasks."""
    replica = one.start().wait_ready()
    one.submit(task(n, NAP, partition=0) for n in range(TASKS))
    one.wait_answered()
    return round(metric(replica, "commits_total"))


def answers_are_committed_by_count(site: Callable[..., Site]) -> None:
    """One commit covers ``KAFKA_COMMIT_EVERY`` answers. Others record the start limit, for a few tasks each."""
    each, tenth, synchronous = (
        commits(site(partitions=1)),
        commits(site(partitions=1, KAFKA_COMMIT_EVERY="20", KAFKA_COMMIT_INTERVAL="1h")),
        commits(site(partitions=1, KAFKA_COMMIT_MODE="sync")),
    )
    print(f"{TASKS} tasks: {each} commits, {tenth} by twenties, {synchronous} synchronous ones")  # noqa: T201
    assert each >= TASKS
    assert tenth < 0.75 * each
    assert synchronous >= TASKS * 0.9


def answers_are_committed_by_time(site: Callable[..., Site]) -> None:
    """The last answers wait for others, but no longer than ``KAFKA_COMMIT_INTERVAL``."""
    one = site(partitions=1, KAFKA_COMMIT_EVERY="1000", KAFKA_COMMIT_INTERVAL="6s")
    one.start().wait_ready()
    before = time.monotonic()
    one.submit(task(n, "go", partition=0) for n in range(3))
    one.wait_answered()
    answered_at = time.monotonic()
    wait_committed(one, {0: 3})
    waited = time.monotonic() - answered_at
    print(f"committed {waited:.1f} s after the last answer was seen, of at most 6")  # noqa: T201 - measured
    assert time.monotonic() - before >= 6
    assert waited < 6 + 4
    one.finish()


def a_process_that_leaves_commits_at_once(site: Callable[..., Site]) -> None:
    """A process that leaves commits its settled requests immediately."""
    one = site(partitions=1, KAFKA_COMMIT_EVERY="1000", KAFKA_COMMIT_INTERVAL="1h")
    exact = site(partitions=1, WORKER_GUARANTEE="exactly-once", KAFKA_COMMIT_EVERY="1000", KAFKA_COMMIT_INTERVAL="1h")
    for at in (one, exact):
        at.start().wait_ready()
        at.submit(task(n, "go", partition=0) for n in range(3))
    for at in (one, exact):
        until(lambda at=at: len(at.journal.entries("end")) == 3, at.tails)  # type: ignore[misc]
        began = time.monotonic()
        assert at.replicas[0].stop() == 0, at.tails()
        assert time.monotonic() - began < 20
        assert at.committed() == {0: 3}
        at.answers.read_all()
        assert len(at.counts()) == 3


SCENARIOS = [
    lag_reaches_zero_behind_transaction_markers,
    lag_reaches_zero_under_every_guarantee,
    answers_are_committed_by_count,
    answers_are_committed_by_time,
    a_process_that_leaves_commits_at_once,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_commit_policy(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
