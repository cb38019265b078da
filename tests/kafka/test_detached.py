"""Short tasks do not wait behind a long one: the partitions of its process move while it runs."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from chaos import groups
from tests.kafka.support.detaching import (
    SESSION,
    SHORT,
    behind_with_a_new_replica,
    behind_with_an_idle_replica,
    holder_of,
    make,
    shared,
    submit_long,
    submit_short,
    two_replicas,
)
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.replica import Replica
    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

NAMES = ("a", "b")  # of replicas that may be restarted
# Seconds for the short tasks, with the default heartbeat of 5 s. Beside other tests the CPUs are busy.
LIMIT = 12.0 if LONG else 25.0


def an_idle_replica_takes_the_work(site: Callable[..., Site], protocol: str, guarantee: str) -> None:
    """The idle replica is ready before the long task starts."""
    one = make(site, protocol, WORKER_GUARANTEE=guarantee)
    assert behind_with_an_idle_replica(one) < LIMIT, one.tails()
    one.finish()
    one.started_once()


def an_idle_replica_takes_the_only_request_behind(site: Callable[..., Site], protocol: str, guarantee: str) -> None:
    """After short tasks, the executor has received this request together with the long one."""
    one = make(site, protocol, WORKER_GUARANTEE=guarantee)
    two_replicas(one)
    one.wait_answered(submit_short(one))
    _, short = one.submit(task(n, f'{{"do": "nap", "seconds": {n}}}', partition=0) for n in (40, 0))
    began = time.monotonic()
    one.wait_answered([short])
    assert time.monotonic() - began < LIMIT, one.tails()
    assert len(one.journal.running()) == 1, "the long task has ended, so nothing was shown"
    one.finish()
    one.started_once()


def a_new_replica_takes_the_work(site: Callable[..., Site], protocol: str, guarantee: str) -> None:
    """The new replica starts while the long task runs."""
    one = make(site, protocol, WORKER_GUARANTEE=guarantee)
    assert behind_with_a_new_replica(one) < LIMIT, one.tails()
    one.finish()
    one.started_once()


def with_a_detached_task(site: Callable[..., Site], protocol: str) -> tuple[Site, Replica, Replica]:
    """Return a site with a short session, the holder of a detached task, and the owner of the task's partition."""
    shorter = {} if protocol == "consumer" else {"KAFKA_CONFIG_SESSION_TIMEOUT_MS": SESSION}
    one = make(site, protocol, WORKER_GUARANTEE="exactly-once", **shorter)
    if protocol == "consumer":
        groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": SESSION})
    replicas = [one.start(WORKER_REPLICA=name).wait_ready() for name in NAMES]
    shared(one, [4, 4])
    submit_long(one, 25)
    one.wait_answered(submit_short(one))
    holder = holder_of(one, replicas)
    return one, holder, next(replica for replica in replicas if replica is not holder)


def a_task_whose_holder_was_killed_is_taken_over(site: Callable[..., Site], protocol: str, _: str) -> None:
    """This happens after the holder's session, even if a replica with the holder's name has started by then."""
    one, holder, owner = with_a_detached_task(site, protocol)
    holder.process.send_signal(signal.SIGKILL)
    holder.process.wait()
    following = one.start(WORKER_REPLICA=NAMES[one.replicas.index(holder)])
    until(lambda: owner.events("task.taken_over") or following.events("task.taken_over"), one.tails)
    one.finish()
    assert sum(one.journal.starts().values()) == SHORT + 2


def a_holder_that_was_frozen_does_not_answer_twice(site: Callable[..., Site], protocol: str, _: str) -> None:
    """The holder continues after its session, when another process has taken over its task."""
    one, holder, owner = with_a_detached_task(site, protocol)
    (worker,) = holder.pids()
    os.kill(worker, signal.SIGSTOP)
    until(lambda: owner.events("task.taken_over"), one.tails)
    os.kill(worker, signal.SIGCONT)
    one.finish()
    assert holder.events("task.superseded")


def a_draining_replica_gives_up_its_partitions(site: Callable[..., Site], protocol: str, guarantee: str) -> None:
    """The draining replica finishes its task, and the other replica runs the short tasks."""
    one = make(site, protocol, WORKER_GUARANTEE=guarantee, WORKER_LONG_AFTER="1h")
    replicas = [one.start().wait_ready(), one.start().wait_ready()]
    shared(one, [4, 4])
    submit_long(one, 30)
    (pid,) = one.journal.running().values()
    holder = next(replica for replica in replicas if pid in replica.pids())
    time.sleep(2)
    holder.process.terminate()
    short, began = submit_short(one), time.monotonic()
    one.wait_answered(short)
    assert time.monotonic() - began < LIMIT, one.tails()
    assert len(one.journal.running()) == 1, "the long task has ended, so nothing was shown"
    assert holder.wait_exit() == 0, holder.tail()
    one.finish()
    one.started_once()


def a_drain_that_times_out_hands_the_task_on(site: Callable[..., Site], protocol: str, guarantee: str) -> None:
    """The task is cancelled where it runs. The owner of its partition starts it again, and no attempt is used up."""
    one = make(site, protocol, WORKER_GUARANTEE=guarantee, WORKER_LONG_AFTER="1h")
    replicas = [one.start(WORKER_DRAIN_TIMEOUT="10s").wait_ready(), one.start(WORKER_DRAIN_TIMEOUT="10s").wait_ready()]
    shared(one, [4, 4])
    (long,) = one.submit([task(0, '{"do": "heed", "seconds": 40}', partition=0)])
    (pid,) = one.wait_running(1).values()
    holder = next(replica for replica in replicas if pid in replica.pids())
    time.sleep(2)
    holder.process.terminate()
    one.wait_answered(submit_short(one))
    assert holder.wait_exit() == 6, holder.tail()
    one.finish()
    assert one.answer_to(long).response.attempt == 1
    assert one.journal.starts()[long.partition, long.offset] == 2


SCENARIOS = [
    (a_draining_replica_gives_up_its_partitions, "consumer", "exactly-once"),
    (an_idle_replica_takes_the_work, "consumer", "exactly-once"),
    (a_new_replica_takes_the_work, "classic", "at-least-once"),
    (a_task_whose_holder_was_killed_is_taken_over, "classic", "exactly-once"),
    (a_holder_that_was_frozen_does_not_answer_twice, "consumer", "exactly-once"),
]
OTHERS = [
    (a_draining_replica_gives_up_its_partitions, "classic", "at-least-once"),
    (a_drain_that_times_out_hands_the_task_on, "consumer", "exactly-once"),
    (an_idle_replica_takes_the_work, "classic", "at-least-once"),
    (an_idle_replica_takes_the_only_request_behind, "consumer", "at-least-once"),
    (a_new_replica_takes_the_work, "consumer", "exactly-once"),
    (a_task_whose_holder_was_killed_is_taken_over, "consumer", "exactly-once"),
    (a_holder_that_was_frozen_does_not_answer_twice, "classic", "exactly-once"),
]


@pytest.mark.parametrize(("scenario", "protocol", "guarantee"), SCENARIOS + OTHERS * LONG)
def test_detached_tasks(site: Callable[..., Site], scenario: Scenario, protocol: str, guarantee: str) -> None:
    scenario(site, protocol, guarantee)
