"""Kills and stops of random processes while requests arrive."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import time
from typing import TYPE_CHECKING, NamedTuple

from chaos import groups
from tests.kafka.faults.faulty import SESSION
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.kafka.support.site import Site

SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02)  # durations of the tasks
STOPS = (1, 8)  # seconds; the longer one outlasts the session


class Size(NamedTuple):
    """The number of tasks and the number of faults."""

    tasks: int
    faults: int


def busy_site(site: Callable[..., Site], guarantee: str, protocol: str, **variables: str) -> Site:
    """Return a site with two processes per replica, eight partitions, a short session, and attempts for all kills."""
    variables |= {"WORKER_PROCESSES": "2", "WORKER_GUARANTEE": guarantee, "WORKER_MAX_ATTEMPTS": "50"}
    variables["KAFKA_GROUP_PROTOCOL"] = protocol
    if protocol == "classic":
        variables["KAFKA_CONFIG_SESSION_TIMEOUT_MS"] = SESSION
    one = site(partitions=8, answers=4, **variables)
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": SESSION})
    return one


def storm(
    one: Site,
    size: Size,
    *,
    seed: int,
    retries: float = 0,
    stops: bool = True,
    variables: Mapping[str, str] | None = None,
) -> None:
    """Start two replicas, and cause a fault in the middle of every wave of requests.

    With ``stops``, every fourth fault stops a process, which continues later. The others are kills. ``retries`` is the
    share of requests whose first attempt fails.
    """
    rng = random.Random(seed)
    for replica in [one.start(**(variables or {})) for _ in range(2)]:
        replica.wait_ready()
    per_wave = -(-size.tasks // size.faults)
    for number in range(size.faults):
        wave = range(number * per_wave, (number + 1) * per_wave)
        before = sum(one.counts().values())
        one.submit(task(n, _payload(rng, retries)) for n in wave)
        wanted = before + rng.randint(1, per_wave // 2)
        until(lambda: sum(one.counts().values()) >= wanted, one.tails)  # noqa: B023 - called at once
        _strike(one, rng, STOPS[number // 4 % 2] if stops and number % 4 == 1 else 0)


def _payload(rng: random.Random, retries: float) -> str:
    if rng.random() < retries:
        return json.dumps({"do": "fail_until", "attempt": 2})
    return json.dumps({"do": "nap", "seconds": rng.choice(SECONDS)})


def _strike(one: Site, rng: random.Random, stop: float) -> None:
    """Kill a random process, or stop it for ``stop`` seconds."""
    struck = False
    while not struck:
        victim = rng.choice(until(lambda: [pid for replica in one.replicas for pid in replica.pids()], one.tails))
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself: choose again
            os.kill(victim, signal.SIGSTOP if stop else signal.SIGKILL)
            struck = True
    if stop:
        time.sleep(stop)  # the fault itself
        with contextlib.suppress(ProcessLookupError):
            os.kill(victim, signal.SIGCONT)
