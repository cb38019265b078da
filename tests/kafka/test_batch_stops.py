"""Batches that are stopped, batches of one partition or under other guarantees, and handlers that look ahead."""

from __future__ import annotations

import itertools
import json
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.batching import batch_site, batches, do, outcomes, signal_of, submit, wait_queued
from tests.kafka.support.topics import Submission, members, task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]


# ---------------------------------------------------------------- stopping


def a_revoke_cancels_a_batch_and_keeps_its_acknowledged_requests(site: Callable[..., Site]) -> None:
    one = batch_site(
        site,
        6,
        partitions=2,
        KAFKA_GROUP_PROTOCOL="consumer",
        WORKER_BATCH_WAIT="20s",
        WORKER_REVOKE_HOLD="2s",
    )
    signal, waiting = signal_of(one)
    first = one.start().wait_ready()
    until(lambda: len(members(one.bootstrap, one.group)) == 1, first.tail)
    payloads = ["a", waiting, waiting]
    submit(one, payloads, 0)
    wait_queued(one, 3)  # the batch waits for more requests
    submit(one, payloads, 1)
    one.wait_running(5)  # a batch of six: the first task is acknowledged, and the second one waits
    one.start_in_a_hurry()
    until(lambda: [e for e in one.journal.entries() if e.event == "cancelled: revoked"], one.tails)
    signal.touch()
    one.finish()
    starts = one.journal.starts()
    assert starts.pop((0, 0)) == 1
    assert {entry.attempt for entry in one.journal.entries("start")} == {1}  # the cancelled start used up no attempt
    assert max(starts.values()) == 2
    assert len({entry.pid for entry in one.journal.entries("start")}) == 2


def a_drain_that_takes_too_long_cancels_the_batch(site: Callable[..., Site]) -> None:
    """A task that is acknowledged after that is still answered. The next replica runs the rest, on the same attempt."""
    one = batch_site(site, 4, WORKER_BATCH_WAIT="5s", WORKER_DRAIN_TIMEOUT="1s")
    first = one.start().wait_ready()
    waiting = do("wait", signal=str(one.folder / "never"), late=True)
    submit(one, ["a", "b", waiting, "d"])
    one.wait_answered(one.sent[:2])
    assert first.stop() == 6, first.tail()
    assert [e.offset for e in one.journal.entries() if e.event == "cancelled: drain"] == [2]
    one.wait_answered(one.sent[:3])
    assert one.committed() == {0: 3}
    one.start_in_a_hurry()
    one.finish()
    assert batches(one) == [[(0, 1), (1, 1), (2, 1), (3, 1)], [(3, 1)]]
    assert one.answer_to(one.sent[2]).response.result == b"late"


def a_drain_lets_the_batch_finish_and_starts_no_other(site: Callable[..., Site]) -> None:
    one = batch_site(site, 3, WORKER_BATCH_WAIT="5s")
    signal, waiting = signal_of(one)
    first = one.start().wait_ready()
    submit(one, ["a", waiting, "c"])
    one.wait_running(2)
    submit(one, ["d", "e", "f"])
    wait_queued(one, 3)
    first.process.terminate()
    first.wait_status("/readyz", 503)
    signal.touch()
    assert first.wait_exit() == 0, first.tail()
    assert batches(one) == [[(0, 1), (1, 1), (2, 1)]]
    assert one.committed() == {0: 3}
    one.start_in_a_hurry()
    one.finish()
    one.started_once()


# ---------------------------------------------------------------- partitions, guarantees, looking ahead

DEEP, SHALLOW = 2_000, 20


def batches_of_one_partition_take_turns(site: Callable[..., Site]) -> None:
    """All requests of a shallow partition start before a quarter of those of a deep one."""
    one = batch_site(site, 10, partitions=2, WORKER_BATCH_PER_PARTITION="on")
    submit(one, [do("nap", seconds=0.001)] * DEEP, 0)
    submit(one, [do("nap", seconds=0.001)] * SHALLOW, 1)
    one.start()
    one.finish()
    one.started_once()
    starts = [entry.partition for entry in one.journal.entries("start")]
    before = starts[: len(starts) - starts[::-1].index(1)].count(0)
    groups = itertools.groupby(one.journal.entries("start"), lambda entry: entry.time)
    assert {len({entry.partition for entry in batch}) for _, batch in groups} == {1}
    print(f"{before} of {DEEP} deep requests were started before the last of {SHALLOW} shallow ones")  # noqa: T201
    assert before < DEEP / 4


def batches_run_under_the_other_guarantees(site: Callable[..., Site]) -> None:
    sites = {}
    for guarantee in ("exactly-once", "at-most-once"):
        one = sites[guarantee] = batch_site(site, 5, WORKER_BATCH_WAIT="5s", WORKER_GUARANTEE=guarantee)
        one.start().wait_ready()
        submit(one, ["a", do("nack", until=2), do("skip", until=2), "d", do("fail", until=2)])
    for one in sites.values():
        one.finish()
    exact, most = sites.values()
    assert outcomes(exact) == ["OK"] * 5
    assert batches(exact) == [[(n, 1) for n in range(5)], [(1, 2), (2, 2), (4, 2)]]
    most.started_once()
    assert outcomes(most) == ["OK", "DEAD_LETTERED", "DEAD_LETTERED", "OK", "DEAD_LETTERED"]
    kinds = [most.answer_to(sent).response.error.type for sent in most.sent]
    assert kinds == ["", "Nack", "ValueError", "", "ValueError"]


def a_handler_of_single_tasks_sees_the_next_requests(site: Callable[..., Site]) -> None:
    """This holds for long and for short tasks. A malformed request is not shown."""
    count, ahead, bad = 14, 3, 8
    for seconds in ("0.4", "0"):
        one = site(partitions=1, WORKER_HANDLER="batches:peek", WORKER_PEEK=str(ahead))
        good = [n for n in range(count) if n != bad]
        one.submit(task(n, seconds, partition=0) if n in good else Submission(b"\xff", b"bad", 0) for n in range(count))
        one.start()
        one.finish()
        answers = {sent.offset: one.answer_to(sent).response for sent in one.sent}
        seen = {n: json.loads(answers[n].result) for n in good}
        expected = {n: [m for m in good if n < m <= n + ahead] for n in good}
        # A task sees the requests that the process has fetched when it starts. Short ones may start before that.
        assert seen == {n: expected[n][: len(seen[n])] for n in good}
        assert any(seen.values())
        if seconds != "0":
            assert {n: seen[n] for n in good[2:]} == {n: expected[n] for n in good[2:]}


SCENARIOS = [
    a_revoke_cancels_a_batch_and_keeps_its_acknowledged_requests,
    a_drain_that_takes_too_long_cancels_the_batch,
    a_drain_lets_the_batch_finish_and_starts_no_other,
    batches_of_one_partition_take_turns,
    batches_run_under_the_other_guarantees,
    a_handler_of_single_tasks_sees_the_next_requests,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_batch_stops(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
