"""Running tasks survive a coordinator that does not reply and partitions that move."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import TYPE_CHECKING

import pytest

from tests.contract.transactions import pid_of
from tests.kafka.faults import faulty
from tests.kafka.faults.faulty import FAULTS
from tests.kafka.support.replica import ROOT
from tests.kafka.support.topics import members, task
from tests.kafka.support.waiting import until
from tests.kafka.test_fault_events import partition_that_moves
from tests.kafka_broker import running_broker
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka_broker import Broker

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

FROZEN = 60.0 if LONG else 15.0  # seconds without the broker
NO_OFFSETS = 45.0 if LONG else 10.0  # seconds without an answer about committed offsets
SOON = 20.0  # seconds within which other requests are answered
HOLD = 5.0


def an_unreachable_coordinator_does_not_repeat_tasks(site: Callable[..., Site]) -> None:
    """While a task runs, the client gets no committed offset for a new partition, and the broker freezes (B2)."""
    with running_broker() as broker:
        one = site(at=broker, partitions=2, KAFKA_GROUP_PROTOCOL="consumer")
        _freeze_after_an_assignment(one, broker)


def _freeze_after_an_assignment(one: Site, broker: Broker) -> None:
    replica = one.start(
        PYTHONPATH=f"{FAULTS}:{ROOT}",
        FAULT_POINT="coordinator_away",
        FAULT_SECONDS=str(NO_OFFSETS),
        FAULT_MARKER="/dev/null",
    ).wait_ready()
    faulty.wait_members(one, 1)
    (first,) = members(one.bootstrap, one.group)
    guest = one.start().wait_ready()
    faulty.wait_members(one, 2)
    (kept,) = members(one.bootstrap, one.group)[first]
    one.submit([task(0, f'{{"do": "nap", "seconds": {FROZEN + 15}}}', partition=kept)])
    one.wait_running(1)
    pids = replica.pids()
    assert guest.stop() == 0, guest.tail()
    until(lambda: len(members(one.bootstrap, one.group)[first]) == 2, one.tails)
    pid = pid_of(broker)
    os.kill(pid, signal.SIGSTOP)
    threading.Timer(FROZEN, os.kill, (pid, signal.SIGCONT)).start()
    time.sleep(FROZEN)
    one.submit([task(1, "go", partition=1 - kept)])
    one.wait_answered(seconds=120)
    assert replica.pids() == pids, one.tails()
    one.finish()
    one.started_once()


def a_task_that_outlives_its_hold_delays_no_other_work_for_long(site: Callable[..., Site]) -> None:
    """The protocol is ``classic``, the hold is 5 s, and the task takes a minute and ignores its cancellation (B4)."""
    one = site(partitions=2, KAFKA_GROUP_PROTOCOL="classic", WORKER_REVOKE_HOLD_CLASSIC=f"{HOLD:.0f}s")
    moved = partition_that_moves(one)
    (long,) = one.submit([task(0, '{"do": "nap", "seconds": 60}', partition=moved)])
    one.wait_running(1)
    first = one.replicas[0]
    one.start_in_a_hurry()
    until(lambda: first.events("partitions.revoked"), one.tails)
    others = one.submit(task(n, "go", partition=1 - moved) for n in range(1, 6))
    since = time.monotonic()
    one.wait_answered(others, seconds=60)
    waited = time.monotonic() - since
    print(f"the others waited {waited:.1f} s")  # noqa: T201 - measured
    assert waited < SOON, one.tails()
    one.finish(twice=[long])


SCENARIOS = [
    an_unreachable_coordinator_does_not_repeat_tasks,
    a_task_that_outlives_its_hold_delays_no_other_work_for_long,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_running_tasks(
    together: Callable[[Callable[..., None]], None], scenario: Callable[[Callable[..., Site]], None]
) -> None:
    together(scenario)
