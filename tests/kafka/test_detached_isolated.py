"""Detached tasks in child processes: time limits end them, and a process can have two of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.detaching import holder_of, make, submit_short, two_replicas
from tests.kafka.support.topics import members, task
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [
    pytest.mark.kafka,
    pytest.mark.timeout(240),
    pytest.mark.skipif(not LONG, reason="its limits of time need a quiet machine: E2E_LONG=1"),
]


def a_limit_kills_a_detached_task(site: Callable[..., Site]) -> None:
    """The holder answers the task. The short tasks do not wait for that."""
    limits = {"WORKER_TASK_TIMEOUT": "20s", "WORKER_CANCEL_GRACE": "1s", "WORKER_MAX_ATTEMPTS": "1"}
    one = make(site, "consumer", WORKER_ISOLATION="process", WORKER_GUARANTEE="exactly-once", **limits)
    replicas = two_replicas(one)
    (long,) = one.submit([task(0, '{"do": "nap", "seconds": 300}', partition=0)])
    one.wait_running(1)
    one.wait_answered(submit_short(one))
    holder_of(one, replicas)
    assert long[:3] not in one.counts()
    one.finish()
    one.started_once()
    assert one.answer_to(long).response.error.type == "TimeLimitExceeded"


def both_slots_of_a_process_are_detached(site: Callable[..., Site]) -> None:
    """The process runs two long tasks at the same time. The other process takes the requests behind them."""
    slots = {"WORKER_ISOLATION": "process", "WORKER_EXTRA_SLOTS": "1"}
    one = make(site, "consumer", WORKER_GUARANTEE="exactly-once", **slots)
    replicas = two_replicas(one)
    first, second, *_ = sorted(min(members(one.bootstrap, one.group).values(), key=min))
    long = one.submit(task(n, '{"do": "nap", "seconds": 40}', partition=p) for n, p in enumerate((first, second)))
    one.wait_running(2)
    one.wait_answered(submit_short(one))
    assert not {sent[:3] for sent in long} & set(one.counts())
    assert len(holder_of(one, replicas).events("task.detached")) == 2
    one.finish()
    one.started_once()


SCENARIOS = [a_limit_kills_a_detached_task, both_slots_of_a_process_are_detached]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_detached_isolated(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
