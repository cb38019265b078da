"""Deadlines of requests: the header ``x-deadline``."""

from __future__ import annotations

import datetime as dt
import json
import time
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import members, reading, task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Submission

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

HOUR = 3600.0


def seconds(moment: float) -> str:
    """Return a time as seconds since the epoch."""
    return f"{moment:.3f}"


def zulu(moment: float) -> str:
    """Return a time in UTC in the format of RFC 3339."""
    return dt.datetime.fromtimestamp(moment, dt.UTC).isoformat().replace("+00:00", "Z")


def abroad(moment: float) -> str:
    """Return a time in the format of RFC 3339 with another offset from UTC."""
    zone = dt.timezone(dt.timedelta(hours=5, minutes=45))
    return dt.datetime.fromtimestamp(moment, zone).isoformat(timespec="seconds")


FORMS = (seconds, zulu, abroad)


def due(payload: str, deadline: str | None, partition: int = 0) -> Submission:
    """Return a request with this deadline."""
    value = None if deadline is None else deadline.encode()
    return task(1, payload, partition=partition)._replace(headers=(("x-deadline", value),))


def an_expired_request_is_answered_without_a_start(site: Callable[..., Site]) -> None:
    """This holds for each format of the deadline. Requests whose deadline has not passed are processed."""
    one = site(partitions=1)
    past = [due("late", form(time.time() - 60)) for form in FORMS]
    one.submit([*past, *[due("in time", form(time.time() + HOUR)) for form in FORMS], task(1, "no hurry", partition=0)])
    one.start()
    one.finish()
    answers = [one.answer_to(sent) for sent in one.sent]
    assert [answer.outcome for answer in answers] == [*["EXPIRED"] * 3, *["OK"] * 4]
    assert one.journal.starts().keys() == {(0, offset) for offset in range(3, 7)}
    for answer in answers[:3]:
        response = answer.response
        assert (response.isprocessed, response.attempt, response.error.type) == (False, 0, "Expired")
    with reading(one.bootstrap, one.dead, one.answer_partitions) as dead_letters:
        assert dead_letters.read_all() == []  # an expired request has an answer, and no dead letter


def a_request_that_expires_while_it_waits_does_not_start(site: Callable[..., Site]) -> None:
    """The deadline passes while one request waits behind a task, and another between two attempts."""
    one = site(partitions=2, WORKER_PROCESSES="2", WORKER_RETRY_BACKOFF="20s..20s")  # up to half of it is jitter
    replica = one.start().wait_ready()
    # One partition for each process: a partition that moves loses its back-off.
    until(lambda: [len(held) for held in members(one.bootstrap, one.group).values()] == [1, 1], replica.tail)
    first = time.time()
    one.submit([task(0, json.dumps({"do": "nap", "seconds": 8}), partition=0), due("go", seconds(first + 5), 0)])
    one.submit([due('{"do": "fail"}', seconds(first + 8), 1), task(1, "go", partition=1)])
    one.finish()
    by_place = {sent[1:3]: one.answer_to(sent).outcome for sent in one.sent}
    assert by_place == {(0, 0): "OK", (0, 1): "EXPIRED", (1, 0): "EXPIRED", (1, 1): "OK"}, replica.tail()
    assert one.journal.starts() == {(0, 0): 1, (1, 0): 1, (1, 1): 1}, replica.tail()


def a_running_task_is_cancelled_at_its_deadline(site: Callable[..., Site]) -> None:
    """If the task returns, its result is the answer. If it raises, it has expired, and has no other attempt."""
    one = site(partitions=2, WORKER_PROCESSES="2", WORKER_HANDLER="batches:clock")
    one.start().wait_ready()
    limit = time.time() + 6
    one.submit([due("return", zulu(limit), 0), due("raise", seconds(limit), 1)])
    one.finish()
    returned, raised = (one.answer_to(sent) for sent in sorted(one.sent, key=lambda sent: sent.partition))
    assert (returned.outcome, raised.outcome) == ("OK", "EXPIRED")
    seen = json.loads(returned.response.result)
    assert seen["reason"] == "deadline"
    assert 0 < seen["before"] <= 6
    assert seen["after"] == 0
    assert seen["stopped_at"] - limit < 3
    assert raised.response.error.type == "RuntimeError"
    one.started_once()


def remaining_time_is_none_without_a_deadline(site: Callable[..., Site]) -> None:
    one = site(partitions=1, WORKER_HANDLER="batches:clock")
    one.submit([task(1, "look", partition=0), due("look", zulu(time.time() + HOUR))])
    one.start()
    one.finish()
    without, with_one = (json.loads(one.answer_to(sent).response.result) for sent in one.sent)
    assert without is None
    assert HOUR - 100 < with_one <= HOUR


MALFORMED = ("tomorrow", "", "nan", "2026-11-21", "2026-11-21T15:00:00", "12:00", "\u00fc", None)


def a_request_with_an_invalid_deadline_is_a_dead_letter(site: Callable[..., Site]) -> None:
    one = site(partitions=1)
    one.submit([*[due("go", text) for text in MALFORMED], task(1, "go", partition=0)])
    one.start()
    one.finish()
    answers = [one.answer_to(sent) for sent in one.sent]
    assert [answer.outcome for answer in answers] == [*["DEAD_LETTERED"] * len(MALFORMED), "OK"]
    assert {answer.response.error.type for answer in answers[:-1]} == {"MalformedDeadline"}
    assert one.journal.starts().keys() == {(0, len(MALFORMED))}
    with reading(one.bootstrap, one.dead, one.answer_partitions) as dead_letters:
        found = {dict(dead_letter.headers)["x-deadline"] for dead_letter in dead_letters.read_all()}
    assert found == {text if text is None else text.encode() for text in MALFORMED}


def requests_expire_under_every_guarantee(site: Callable[..., Site]) -> None:
    sites = [site(partitions=1, WORKER_GUARANTEE=guarantee) for guarantee in ("exactly-once", "at-most-once")]
    for one in sites:
        one.submit([due("late", zulu(time.time() - 60)), task(1, "go", partition=0)])
        one.start()
    for one in sites:
        one.finish()
        assert [one.answer_to(sent).outcome for sent in one.sent] == ["EXPIRED", "OK"]
        assert one.journal.starts().keys() == {(0, 1)}


SCENARIOS = [
    an_expired_request_is_answered_without_a_start,
    a_request_that_expires_while_it_waits_does_not_start,
    a_running_task_is_cancelled_at_its_deadline,
    remaining_time_is_none_without_a_deadline,
    a_request_with_an_invalid_deadline_is_a_dead_letter,
    requests_expire_under_every_guarantee,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_expiry(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
