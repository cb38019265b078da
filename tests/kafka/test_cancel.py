"""Cancel requests on a real broker, for a request that waits behind a long task and for a running one."""

from __future__ import annotations

import json
import random
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from tests.kafka.support.states import States
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until
from tests.long_form import LONG
from worker.core.task_state import Origin

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Sent

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(600 if LONG else 120)]

RACES = 50 if LONG else 10
SECONDS = 0.4  # of a task in the race: the test must see its record before it ends
AROUND = (-0.2, 0.05)  # seconds from the end of a task to its cancel request, which takes some 0.1 s to arrive
GUARANTEES = ["at-least-once", "at-most-once", "exactly-once"]


def make(site: Callable[..., Site], **variables: str) -> tuple[Site, States]:
    one = site(partitions=1, WORKER_HANDLER="steps:handle", WORKER_HANDLER_KWARGS="{}", **variables)
    states = States(one.bootstrap)
    one.start(KAFKA_STATE_TOPIC=states.topic).wait_ready()
    return one, states


def waiting(number: int, seconds: float) -> Any:
    return task(number, json.dumps({"wait": seconds}))


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_cancel_request_ends_a_queued_and_a_running_request(site: Callable[..., Site], guarantee: str) -> None:
    """Both are answered ``CANCELLED``. The state topic then has neither the cancel requests nor the state.

    Under at-most-once, the queued request is answered when its turn comes.
    """
    one, states = make(site, WORKER_GUARANTEE=guarantee, WORKER_ISOLATION="process", WORKER_CANCEL_GRACE="1s")
    running, queued, last = one.submit([waiting(1, 100), waiting(2, 100), waiting(3, 0)])
    until(lambda: any(state.progress == 0.5 for state in states.table.states.values()), one.tails)
    states.cancel(queued)
    if guarantee != "at-most-once":
        one.wait_answered([queued])
    assert one.counts()[running[:3]] == 0
    states.cancel(running)
    one.finish()
    assert [one.answer_to(sent).outcome for sent in (running, queued, last)] == ["CANCELLED", "CANCELLED", "OK"]
    until(lambda: not (states.table.states or states.table.cancels), one.tails)
    states.cancel(last)


@pytest.mark.parametrize("guarantee", GUARANTEES if LONG else ["exactly-once"])
def test_a_race_against_the_end(site: Callable[..., Site], guarantee: str) -> None:
    """Each task is cancelled about when it ends. It has one answer, ``OK`` or ``CANCELLED``."""
    one, states = make(site, WORKER_GUARANTEE=guarantee)
    one.submit(waiting(number, SECONDS) for number in range(RACES))
    race(one, states)
    one.wait_answered()
    until(lambda: not (states.table.states or states.table.cancels), one.tails)
    one.finish()
    outcomes = Counter(one.answer_to(sent).outcome for sent in one.sent)
    print(f"{guarantee}: {dict(outcomes)}")  # noqa: T201 - measured
    assert set(outcomes) <= {"OK", "CANCELLED"}


def race(one: Site, states: States) -> None:
    """Cancel every request about when its task ends. Its record on the topic says when the task began."""
    missing = {Origin(*sent[:3]): sent for sent in one.sent}
    with ThreadPoolExecutor() as pool:
        cancels = []

        def all_seen() -> bool:
            for origin, state in states.table.states.items():
                if (sent := missing.pop(origin, None)) is not None:
                    at = state.started_ns / 1e9 + SECONDS + random.uniform(*AROUND)
                    cancels.append(pool.submit(cancel_at, states, sent, at))
            return missing.keys() <= {Origin(*origin) for origin in one.counts()}

        until(all_seen, one.tails)
        for sent in missing.values():  # on a busy machine a record may be gone before it was seen here
            states.cancel(sent)
        for cancel in cancels:
            cancel.result()


def cancel_at(states: States, sent: Sent, at: float) -> None:
    time.sleep(max(0.0, at - time.time()))
    states.cancel(sent)
