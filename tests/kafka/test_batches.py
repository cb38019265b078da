"""Batches: which requests are in a batch, and how each of them ends."""

from __future__ import annotations

import json
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.batching import batch_site, batches, do, outcomes, signal_of, submit, wait_queued
from tests.kafka.support.replica import metric
from tests.kafka.support.topics import Submission, reading, task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

SLACK = 4.0  # seconds that a busy machine may add


# ---------------------------------------------------------------- the content of a batch


def without_a_wait_a_batch_has_the_requests_that_are_there(site: Callable[..., Site]) -> None:
    one = batch_site(site, 8)
    signal, waiting = signal_of(one)
    one.start().wait_ready()
    submit(one, [waiting])
    one.wait_running(1)  # alone in its batch: no other request was queued
    submit(one, ["x"] * 12)
    wait_queued(one, 12)
    signal.touch()
    one.finish()
    one.started_once()
    assert list(map(len, batches(one))) == [1, 8, 4]


def a_batch_waits_only_if_it_is_not_full(site: Callable[..., Site]) -> None:
    one = batch_site(site, 3, WORKER_BATCH_WAIT="8s")
    one.start().wait_ready()
    submit(one, ["x"] * 3)
    there_at = time.monotonic()
    one.wait_answered()
    full = one.journal.entries("start")[0].time - there_at
    before = time.monotonic()
    submit(one, ["x"])
    there_at = time.monotonic()
    submit(one, ["x"])
    one.finish()
    one.started_once()
    start = one.journal.entries("start")[-1].time
    print(f"a full batch started after {full:.2f} s, one of two after {start - before:.2f} s")  # noqa: T201 - measured
    assert list(map(len, batches(one))) == [3, 2]
    assert full < 8 - SLACK
    assert start - before >= 7.9
    assert start - there_at <= 8 + SLACK


def malformed_requests_never_reach_the_handler(site: Callable[..., Site]) -> None:
    one = batch_site(site, 5, WORKER_BATCH_WAIT="5s")
    one.start().wait_ready()
    bad = [Submission(value, b"bad", 0) for value in (b"\xff\xff", b"", None)]
    one.submit([task(1, "x", partition=0), *bad, task(2, "y", partition=0)])
    one.finish()
    assert batches(one) == [[(0, 1), (4, 1)]]
    assert outcomes(one) == ["OK", *["DEAD_LETTERED"] * 3, "OK"]


# ---------------------------------------------------------------- the end of each request


def an_acknowledged_request_is_settled_while_the_handler_runs(site: Callable[..., Site]) -> None:
    one = batch_site(site, 4, WORKER_BATCH_WAIT="5s")
    signal, waiting = signal_of(one)
    one.start().wait_ready()
    submit(one, ["a", "b", waiting, "d"])
    one.wait_answered(one.sent[:2])
    until(lambda: one.committed() == {0: 2}, lambda: f"{one.committed()}")
    assert set(one.journal.running()) == {(0, 2), (0, 3)}  # in the same batch, which has not ended
    assert set(one.counts()) == {sent[:3] for sent in one.sent[:2]}
    signal.touch()
    one.finish()
    one.started_once()
    assert [one.answer_to(sent).response.result for sent in one.sent] == [b"a", b"b", b"waited", b"d"]
    assert len(batches(one)) == 1


def a_refused_request_runs_again_and_becomes_a_dead_letter(site: Callable[..., Site]) -> None:
    one = batch_site(site, 4, WORKER_BATCH_WAIT="5s")
    one.start().wait_ready()
    submit(one, ["a", do("nack", until=2), do("nack", reason="never"), "d"])
    one.finish()
    assert one.journal.starts() == Counter({(0, 0): 1, (0, 1): 2, (0, 2): 3, (0, 3): 1})
    assert outcomes(one) == ["OK", "OK", "DEAD_LETTERED", "OK"]
    assert one.answer_to(one.sent[1]).response.attempt == 2
    error = one.answer_to(one.sent[2]).response.error
    assert (error.type, error.message) == ("Nack", "never")
    with reading(one.bootstrap, one.dead, one.answer_partitions) as dead_letters:
        (dead_letter,) = dead_letters.read_all()
    headers = dict(dead_letter.headers)
    assert (headers["x-attempts"], headers["x-error-type"], headers["x-origin-offset"]) == (b"3", b"Nack", b"2")


def unsettled_requests_run_again_in_order_without_a_fetch(site: Callable[..., Site]) -> None:
    """Unsettled requests start again before later ones of their partition. Each of their starts is an attempt."""
    one = batch_site(site, 5)
    payloads = ["a", do("skip", until=2), "c", do("skip", until=3), "e", "f", "g", do("skip")]
    signal, waiting = signal_of(one)
    replica = one.start().wait_ready()
    submit(one, [waiting])
    one.wait_running(1)
    submit(one, payloads)
    wait_queued(one, len(payloads))
    signal.touch()
    one.finish()
    assert batches(one)[1:4] == [
        [(1, 1), (2, 1), (3, 1), (4, 1), (5, 1)],
        [(2, 2), (4, 2), (6, 1), (7, 1), (8, 1)],
        [(4, 3), (8, 2)],
    ]
    assert one.answer_to(one.sent[-1]).response.error.type == "NotSettled"
    assert outcomes(one) == [*["OK"] * 8, "DEAD_LETTERED"]
    assert len(replica.events("partitions.assigned")) == 1  # no request was fetched a second time
    assert one.journal.starts()[0, 8] == 3


def unacknowledged_requests_run_again_after_an_exception(site: Callable[..., Site]) -> None:
    one = batch_site(site, 5, WORKER_BATCH_WAIT="5s")
    replica = one.start().wait_ready()
    submit(one, ["a", do("nack", until=2), do("fail", until=2), "d", "e"])
    one.wait_answered()
    assert metric(replica, "records_total") == len(one.sent)
    one.finish()
    assert batches(one) == [[(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)], [(1, 2), (2, 2), (3, 2), (4, 2)]]
    assert outcomes(one) == ["OK"] * 5


def invalid_settling_raises_and_changes_nothing(site: Callable[..., Site]) -> None:
    one = batch_site(site, 3, WORKER_BATCH_WAIT="3s")
    one.start().wait_ready()
    submit(one, [do("skip", until=2), "b"])
    one.wait_answered()
    submit(one, ["c", do("misuse"), "e"])
    one.finish()
    errors = json.loads(one.answer_to(one.sent[3]).response.result)
    assert errors[:4] == ["ValueError"] * 4
    assert errors[4] != "none"
    assert outcomes(one) == ["OK"] * 5


SCENARIOS = [
    without_a_wait_a_batch_has_the_requests_that_are_there,
    a_batch_waits_only_if_it_is_not_full,
    malformed_requests_never_reach_the_handler,
    an_acknowledged_request_is_settled_while_the_handler_runs,
    a_refused_request_runs_again_and_becomes_a_dead_letter,
    unsettled_requests_run_again_in_order_without_a_fetch,
    unacknowledged_requests_run_again_after_an_exception,
    invalid_settling_raises_and_changes_nothing,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_batches(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
