"""One simulated run of a policy."""

from __future__ import annotations

import heapq
import math
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt
import simpy

from benchmarks.simulation.costs import COMMITS, DETACHED_REQUESTS, coordinator
from benchmarks.simulation.group import Group
from benchmarks.simulation.process import Policy, Process, Results

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable, Sequence

    from benchmarks.simulation.group import Request

SHORT = 1.0  # seconds: tasks up to this length are short
LONG = 60.0

Floats = npt.NDArray[np.float64]


class Setup(NamedTuple):
    """The settings of a run. ``joins`` are the times at which another process joins."""

    processes: int
    partitions: int
    heartbeat: float = 5.0
    joins: tuple[float, ...] = ()


class Summary(NamedTuple):
    """The results for the requests after the warm-up. Waits are in seconds, from sent to started or the end of the run.

    ``stretch`` is the time from sent to ended ÷ the length, as the mean of ended tasks of at least a minute.
    """

    tasks: int
    mean_wait: float
    p99_wait: float
    short_mean: float
    short_p99: float
    stretch: float
    utilisation: float
    changes: float  # of subscriptions per second
    detached: float  # tasks per second
    without_owner: float  # share of the partitions' time
    coordinator: float  # CPUs


def simulate(
    setup: Setup, policy: Policy, traffic: Iterable[Request], *, until: float, seed: int = 0
) -> tuple[Results, Group, float]:
    """Return the results of the requests, the group, and the CPU seconds used until ``until``."""
    results, env = Results(), simpy.Environment()
    group = Group(env, Random(seed), setup.partitions, setup.heartbeat)
    members = [Process(env, group, policy, results) for _ in range(setup.processes)]
    group.begin(members)
    for member in members:
        env.process(member.run())
    for moment in setup.joins:
        env.process(_join(env, group, policy, results, moment, members))
    env.process(_send(env, group, traffic))
    env.run(until)
    return results, group, sum(member.busy_seconds for member in members)


def _join(
    env: simpy.Environment, group: Group, policy: Policy, results: Results, moment: float, members: list[Process]
) -> Generator[simpy.Event, object, None]:
    yield env.timeout(moment)
    member = Process(env, group, policy, results)
    members.append(member)
    env.process(member.run())
    group.take_part(member)


def _send(env: simpy.Environment, group: Group, traffic: Iterable[Request]) -> Generator[simpy.Event, object, None]:
    for request in traffic:
        yield env.timeout(max(0.0, request.sent - env.now))
        partition = group.partitions[request.partition]
        partition.requests.append(request)
        if partition.owner is not None and len(partition.requests) == 1:
            partition.owner.arrived(partition)


def central(processes: int, traffic: Iterable[Request], until: float) -> tuple[Results, float]:
    """Start each request of one queue on the first free process. This needs no simulation."""
    results, busy = Results(), 0.0
    free = [0.0] * processes
    for request in traffic:
        begin = max(request.sent, heapq.heappop(free))
        end = begin + request.seconds
        heapq.heappush(free, end)
        if begin < until:
            results.started(request, begin)
            busy += min(end, until) - begin
        if end < until:
            results.ended(request, end)
    return results, busy


def summarise(
    setup: Setup, policy: Policy, traffic: Sequence[Request], *, until: float, warm_up: float, seed: int = 0
) -> Summary:
    """Run a policy. Requests of the warm-up do not count."""
    if policy.central:
        results, busy = central(setup.processes, traffic, until)
        changes = idle = load = 0.0
    else:
        results, group, busy = simulate(setup, policy, traffic, until=until, seed=seed)
        changes, idle = group.changes / until, group.idle_seconds / until / setup.partitions
        load = _coordinator(setup, results, changes, until)
    waits, shorts = _waits(results, traffic, warm_up, until)
    stretches = [took / r.seconds for r, took in results.took if r.sent >= warm_up and r.seconds >= LONG]
    return Summary(
        len(waits),
        float(np.mean(waits)),
        float(np.percentile(waits, 99)),
        float(np.mean(shorts)),
        float(np.percentile(shorts, 99)),
        float(np.mean(stretches)) if stretches else math.nan,
        busy / setup.processes / until,
        changes,
        results.detached / until,
        idle,
        load,
    )


def _coordinator(setup: Setup, results: Results, changes: float, until: float) -> float:
    settled = min(len(results.took) / until, setup.processes * COMMITS)
    return coordinator(
        processes=setup.processes,
        heartbeat=setup.heartbeat,
        commits=settled + results.detached / until * DETACHED_REQUESTS,
        changes=changes,
        detached=results.detached_seconds / until,
    )


def _waits(results: Results, traffic: Sequence[Request], warm_up: float, until: float) -> tuple[Floats, Floats]:
    """Return the waits of all requests, and of short ones. Those that have not started waited until the end."""
    begun = set(results.requests)
    unstarted = [request for request in traffic if request not in begun]
    requests = results.requests + unstarted
    waited = np.array(results.waited + [until - request.sent for request in unstarted])
    counted = np.array([request.sent for request in requests]) >= warm_up
    short = np.array([request.seconds for request in requests]) <= SHORT
    return waited[counted], waited[counted & short]
