"""Measurements on Kafka beside their simulation. The simulation is valid as far as the two agree.

The measurements come from the feasibility study of detached tasks: Kafka 4.3.0, one broker, the consumer protocol, and
a prototype of a worker. Times are in seconds.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

import numpy as np
import simpy

from benchmarks.simulation.costs import COMMITS, coordinator
from benchmarks.simulation.group import Group
from benchmarks.simulation.process import Policy, Process, Results
from benchmarks.simulation.run import SHORT, Setup, simulate
from benchmarks.simulation.traffic import as_measured

if TYPE_CHECKING:
    from collections.abc import Generator

    from benchmarks.simulation.group import Member

Events: TypeAlias = "Generator[simpy.Event, object, None]"

TOLERANCE = 0.2
TRIALS = 300  # of one change of a subscription
ASSIGNMENTS = 40  # of partitions to processes, because waits depend on which ones share a process
QUIET = 30.0  # heartbeats between two changes

# heartbeat, members: until others have all partitions of one that gives way (median, 90 %), until one has its share
MOVES = {
    (5.0, 2): (3.177, 3.932, 5.009),
    (5.0, 4): (3.397, 4.799, 5.012),
    (5.0, 20): (3.144, 4.574, 5.007),
    (0.5, 2): (0.360, 0.503, 0.508),
    (0.5, 4): (0.465, 0.614, 0.512),
    (0.5, 20): (0.429, 0.487, 0.505),
}
# heartbeat, members: changes per second that were aimed at, made, and the share of partitions without an owner
RATES = {
    (5.0, 20): ((1.0, 0.72, 0.11), (2.0, 1.7, 0.24)),
    (0.5, 20): ((2.0, 1.9, 0.032), (4.0, 3.3, 0.059)),
}
# heartbeat, members: CPUs of the broker, with a commit per member and second
BROKER = {(5.0, 20): 0.05, (5.0, 50): 0.1, (5.0, 150): 0.2, (0.5, 20): 0.1, (0.5, 50): 0.2}
# The same requests to four processes, and a fifth after half the time; means of one run under each group protocol.
HOLD = {"90 %": 28.93, "99 %": 74.85}
DETACH = {"99 %": 5.48, "most": 7.13}  # the consumer protocol only: heartbeats of 0.5 s, detached after 2 s


class Check(NamedTuple):
    name: str
    measured: float
    simulated: float

    @property
    def deviation(self) -> float:
        """Return the relative deviation: 0.1 if the simulation is a tenth higher."""
        return self.simulated / self.measured - 1


def checks() -> list[Check]:
    """Return every comparison. This takes a few seconds."""
    found = []
    for (heartbeat, members), (median, most, back) in MOVES.items():
        away, returned = _moves(heartbeat, members)
        name = f"{members} processes, heartbeat {heartbeat:g} s"
        found.append(Check(f"{name}: partitions have moved, median", median, float(np.median(away))))
        found.append(Check(f"{name}: partitions have moved, 90 %", most, float(np.percentile(away, 90))))
        found.append(Check(f"{name}: back at work, median", back, float(np.median(returned))))
    for (heartbeat, members), rows in RATES.items():
        for aimed, made, idle in rows:
            name = f"{members} processes, heartbeat {heartbeat:g} s, {made} changes/s: share without an owner"
            found.append(Check(name, idle, made * _idle_per_change(heartbeat, members, aimed)))
    for (heartbeat, members), load in BROKER.items():
        simulated = coordinator(
            processes=members, heartbeat=heartbeat, commits=members * COMMITS, changes=0, detached=0
        )
        found.append(Check(f"{members} processes, heartbeat {heartbeat:g} s: CPUs of the broker", load, simulated))
    return found + _waits()


def _moves(heartbeat: float, members: int) -> tuple[list[float], list[float]]:
    """Let one member give way and return repeatedly, with two partitions per member. Return both durations."""
    env, random = simpy.Environment(), Random(1)
    group = Group(env, random, 2 * members, heartbeat)
    processes = [Process(env, group, Policy("idle"), Results()) for _ in range(members)]
    group.begin(processes)
    away: list[float] = []
    back: list[float] = []
    for _ in range(TRIALS):
        member = random.choice(processes)
        for times, change in ((away, group.give_way), (back, group.take_part)):
            env.run(env.now + heartbeat * (QUIET + random.random()))
            group.moves.clear()
            change(member)
            env.run(env.now + heartbeat * QUIET)
            times.append(max(seconds for _why, seconds in group.moves))
    return away, back


def _idle_per_change(heartbeat: float, members: int, aimed: float, seconds: float = 40.0) -> float:
    """Return the idle share as measured: half of the changes give way at random times, for a fixed time each."""
    shares, made = [], []
    for seed in range(20):
        env, random = simpy.Environment(), Random(seed)
        group = Group(env, random, 2 * members, heartbeat)
        processes = [Process(env, group, Policy("idle"), Results()) for _ in range(members)]
        group.begin(processes)
        away = min(20.0, max(6.0, 0.7 * members / aimed), 0.8 * members / aimed)
        env.process(_changes(env, group, random, aimed / 2, away))
        env.run(seconds)
        without = sum(seconds - p.idle_since for p in group.partitions if p.owner is None)
        shares.append((group.idle_seconds + without) / seconds / len(group.partitions))
        made.append(group.changes / seconds)
    return float(np.mean(shares) / np.mean(made))


def _changes(env: simpy.Environment, group: Group, random: Random, rate: float, away: float) -> Events:
    members = len(group.active)
    while True:
        yield env.timeout(random.expovariate(rate))
        free = [member for member in group.active if member.owned]
        if len(free) > 0.4 * members:
            member = random.choice(free)
            group.give_way(member)
            env.process(_return(env, group, member, away))


def _return(env: simpy.Environment, group: Group, member: Member, away: float) -> Events:
    yield env.timeout(away)
    group.take_part(member)


def _waits() -> list[Check]:
    """Compare the waits of the study's short requests, from sent to answered, at random assignments."""
    found = []
    for policy, measured in ((Policy("hold"), HOLD), (Policy("detach", 2.0, detach=True), DETACH)):
        rows = [_short_ones(policy, seed) for seed in range(ASSIGNMENTS)]
        for (name, value), simulated in zip(measured.items(), np.mean(rows, axis=0)[-len(measured) :], strict=True):
            found.append(Check(f"five processes, {policy.name}: short tasks, {name}", value, float(simulated)))
    return found


def _short_ones(policy: Policy, seed: int) -> list[float]:
    requests = as_measured(Random(7), rate=4.0, until=200.0, partitions=12)
    setup = Setup(processes=4, partitions=12, heartbeat=0.5, joins=(100.0,))
    results, _, _ = simulate(setup, policy, requests, until=600.0, seed=seed)
    took = [took for request, took in results.took if request.seconds < SHORT]
    quantiles = (90, 99) if policy.name == "hold" else (99, 100)
    return [float(value) for value in np.percentile(took, quantiles)]
