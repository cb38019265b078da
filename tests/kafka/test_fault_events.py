"""Faults other than kills in a process with a task, under exactly-once and at-most-once.

Under at-least-once: ``test_scaling.py``, ``test_outage.py``, ``test_drain.py``.
"""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.kafka.faults import faulty
from tests.kafka.support.topics import members, task
from tests.kafka.support.waiting import until
from tests.kafka_broker import running_broker
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Sent

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

NAP = '{"do": "nap", "seconds": 4}'
LONG_NAP = '{"do": "nap", "seconds": 20}'  # another replica can start meanwhile, also on a busy machine
LONGER_NAP = '{"do": "nap", "seconds": 60}'  # longer than the hold and the grace too
HEED = '{"do": "heed", "seconds": 60}'
AWAY = 15.0  # seconds without a broker
EXACTLY, AT_MOST = "exactly-once", "at-most-once"


def outcomes(one: Site, sent: Sent) -> list[str]:
    """Return the outcomes of a request's answers that readers of committed records see."""
    return [answer.outcome for answer in one.answers.read_all() if answer.origin == sent[:3]]


# -- a process that is stopped for longer than its session, and continues when its partitions have moved


def zombie(guarantee: str, point: str, protocol: str = "consumer") -> Scenario:
    """Return a scenario: a process stops at ``point``, and continues when its request is answered or lost."""

    def play(site: Callable[..., Site]) -> None:
        one = faulty.small_site(site, guarantee, KAFKA_GROUP_PROTOCOL=protocol, WORKER_LIVENESS_TIMEOUT="10m")
        (first,) = one.submit([task(0, NAP, partition=0)])
        stopped = faulty.start(one, point, "SIGSTOP")
        faulty.struck(one)
        one.start_in_a_hurry()
        if guarantee == AT_MOST:
            until(lambda: faulty.named_as_lost(one) == {(0, 0)}, one.tails)
        else:
            one.wait_answered()
        faulty.wake(one)
        until(lambda: stopped.events("partitions.lost", "process.ended"), one.tails)
        faulty.wait_members(one, 2)
        one.submit(task(n, "go", partition=n % 2) for n in range(1, 9))
        one.finish(twice=[first] if guarantee == "at-least-once" else [])
        assert one.journal.starts()[0, 0] == (1 if guarantee == AT_MOST else 2), one.tails()
        if guarantee == EXACTLY:
            assert one.answer_to(first).response.result == b"hurried"

    play.__name__ = f"zombie-{guarantee}-{point}-{protocol}"
    return play


# -- a partition that is taken away while its task runs


def taken_away(one: Site, payload: str) -> Sent:
    """Submit a request to the partition that will move, and start another replica when its task runs."""
    moved = partition_that_moves(one)
    (sent,) = one.submit([task(0, payload, partition=moved)])
    one.wait_running(1)
    one.start_in_a_hurry()
    return sent


def partition_that_moves(one: Site) -> int:
    """Return which of a member's two partitions moves when another member joins. It is the same one every time."""
    one.start().wait_ready()
    faulty.wait_members(one, 1)
    before = set(members(one.bootstrap, one.group))
    guest = one.start()
    faulty.wait_members(one, 2)
    ((moved,),) = [parts for member, parts in members(one.bootstrap, one.group).items() if member not in before]
    assert guest.stop() == 0, guest.tail()
    faulty.wait_members(one, 1)
    return moved


def a_revoked_partition_waits_for_its_task(site: Callable[..., Site]) -> None:
    sites = [faulty.small_site(site, guarantee) for guarantee in (EXACTLY, AT_MOST)]
    sent = [taken_away(one, LONG_NAP) for one in sites]
    for one, first in zip(sites, sent, strict=True):
        until(lambda: one.replicas[0].events("partitions.holding"), one.tails)  # noqa: B023 - called at once
        one.finish()
        one.started_once()
        assert one.answer_to(first).response.result == b"slept 20"


def after_the_hold_exactly_once_runs_the_task_again(site: Callable[..., Site]) -> None:
    """The result of the first start comes after the end of the lease and is dropped."""
    one = faulty.small_site(site, EXACTLY, WORKER_REVOKE_HOLD="2s")
    first = taken_away(one, LONGER_NAP)
    one.finish()
    assert sum(one.journal.starts().values()) == 2
    assert one.answer_to(first).response.result == b"hurried"


def after_the_hold_at_most_once_does_not_run_the_task_again(site: Callable[..., Site]) -> None:
    """After the lease, a task that stops is answered as cancelled, and a task that continues with its result."""
    sites = [faulty.small_site(site, AT_MOST, WORKER_REVOKE_HOLD="2s") for _ in range(2)]
    sent = [taken_away(one, payload) for one, payload in zip(sites, (HEED, LONG_NAP), strict=True)]
    for one, first, outcome in zip(sites, sent, ("CANCELLED", "OK"), strict=True):
        one.finish()
        one.started_once()
        assert outcomes(one, first) == [outcome]


def a_member_that_was_removed_during_a_hold_comes_back(site: Callable[..., Site]) -> None:
    """The process is stopped for longer than its session, and notices that only by its transaction."""
    one = faulty.small_site(site, EXACTLY, WORKER_LIVENESS_TIMEOUT="10m")
    first = taken_away(one, LONG_NAP)
    holder = one.replicas[0]
    until(lambda: holder.events("partitions.holding"), one.tails)
    (pid,) = holder.pids()
    os.kill(pid, signal.SIGSTOP)
    one.wait_answered()
    os.kill(pid, signal.SIGCONT)
    until(lambda: holder.events("partitions.lost"), one.tails)
    faulty.wait_members(one, 2)
    assert not holder.events("process.ended")
    one.submit(task(n, "go", partition=n % 2) for n in range(1, 9))
    one.finish()
    assert outcomes(one, first) == ["OK"]
    assert one.answer_to(first).response.result == b"hurried"


# -- SIGTERM


def sigterm_lets_the_task_finish(site: Callable[..., Site]) -> None:
    sites = [faulty.small_site(site, guarantee) for guarantee in (EXACTLY, AT_MOST)]
    for one in sites:
        one.submit(task(n, NAP, partition=n % 2) for n in range(6))
        one.start()
    for one in sites:
        one.wait_running(1)
        assert one.replicas[0].stop() == 0, one.tails()
        done = {answer.origin[1:] for answer in one.answers.read_all()}
        assert done == set(one.journal.starts())
        assert len(done) < len(one.sent), "the signal came too late to show anything"
        one.start_in_a_hurry()
    for one in sites:
        one.finish()
        one.started_once()
        assert not faulty.named_as_lost(one)


def a_second_sigterm_cancels_the_task(site: Callable[..., Site]) -> None:
    """Under exactly-once the next replica runs the task again. Under at-most-once the answer is ``CANCELLED``."""
    for guarantee, starts, said in ((EXACTLY, 2, "OK"), (AT_MOST, 1, "CANCELLED")):
        one = faulty.small_site(site, guarantee)
        (first,) = one.submit([task(0, HEED, partition=0)])
        replica = one.start()
        one.wait_running(1)
        replica.send(signal.SIGTERM)
        replica.wait_status("/readyz", 503)
        replica.send(signal.SIGTERM)
        assert replica.wait_exit() == 6, replica.tail()
        one.start_in_a_hurry().wait_ready()
        one.finish()
        assert one.journal.starts() == Counter({(0, 0): starts})
        assert outcomes(one, first) == [said]


# -- the broker


def the_broker_goes_away_and_comes_back(site: Callable[..., Site]) -> None:
    """Answers wait for the broker. If a partition is lost meanwhile, its tasks start again only under exactly-once."""
    with running_broker() as separate:
        sites = [site(at=separate, partitions=4, WORKER_GUARANTEE=guarantee) for guarantee in (EXACTLY, AT_MOST)]
        for one in sites:
            one.start().wait_ready()
            payloads = ["go", '{"do": "nap", "seconds": 1}'] * 20
            one.submit(task(n, payload, partition=n // 2 % 4) for n, payload in enumerate(payloads))
        for one in sites:
            until(lambda: sum(one.counts().values()) >= 5, one.tails)  # noqa: B023 - called at once
        separate.script("stop")
        assert sum(sites[0].journal.starts().values()) < 40, "the outage came too late to show anything"
        time.sleep(AWAY)  # the fault itself
        separate.script("up")
        for one in sites:
            one.finish()
            if not one.replicas[0].events("partitions.lost"):
                one.started_once()
        assert set(sites[1].journal.starts().values()) == {1}


SCENARIOS = [
    zombie("at-least-once", "finished"),
    *[zombie(EXACTLY, point) for point in ("in_task", "finished", "after_delivery")],
    zombie(EXACTLY, "after_delivery", "classic"),
    *[zombie(AT_MOST, point) for point in ("in_task", "finished")],
    *([zombie(EXACTLY, "after_produce"), zombie(EXACTLY, "finished", "classic")] if LONG else []),
    a_revoked_partition_waits_for_its_task,
    a_member_that_was_removed_during_a_hold_comes_back,
    after_the_hold_exactly_once_runs_the_task_again,
    after_the_hold_at_most_once_does_not_run_the_task_again,
    sigterm_lets_the_task_finish,
    a_second_sigterm_cancels_the_task,
    the_broker_goes_away_and_comes_back,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_fault_events(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
