"""The simulated runs behind docs/simulation.md."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, NamedTuple

from benchmarks.simulation.process import Policy
from benchmarks.simulation.run import Setup, Summary, summarise
from benchmarks.simulation.traffic import BORG, MIXED, poisson

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.simulation.traffic import Lengths

LOAD = 0.7  # share of all CPUs
HOUR = 3600.0
FEW = 100  # processes, if a setting is varied
HOLD = Policy("hold")
DETACH = Policy("detach after 60 s", 60.0, detach=True)
SLOTS = Policy("2 extra slots", 60.0, slots=2)
BOTH = Policy("detach, 2 extra slots", 60.0, detach=True, slots=2)
CENTRAL = Policy("one central queue", central=True)


class Case(NamedTuple):
    """One run. ``varied`` is the value of the varied setting of its sweep."""

    sweep: str
    policy: Policy
    varied: float
    lengths: Lengths = BORG
    processes: int = FEW
    per_process: float = 5
    heartbeat: float = 5.0
    load: float = LOAD
    seconds: float = 1.5 * HOUR

    def run(self) -> Summary:
        partitions = round(self.processes * self.per_process)
        rate = self.load * self.processes / self.lengths.mean
        traffic = list(poisson(Random(1), self.lengths, rate, self.seconds, partitions))
        setup = Setup(self.processes, partitions, self.heartbeat)
        return summarise(setup, self.policy, traffic, until=self.seconds, warm_up=self.seconds / 3)


def _policies() -> Iterator[Case]:
    for policy in (HOLD, DETACH, SLOTS, BOTH, CENTRAL):
        yield Case("policies", policy, 0, MIXED, processes=1000, seconds=HOUR)


def _long_after() -> Iterator[Case]:
    for heartbeat in (5.0, 1.0):
        for after in (10.0, 30.0, 60.0, 120.0, 300.0):
            policy = Policy(f"heartbeat {heartbeat:g} s", after, detach=True)
            yield Case("long after", policy, after, heartbeat=heartbeat, seconds=HOUR)


def _partitions() -> Iterator[Case]:
    for per_process in (1, 2, 5, 10, 20):
        for policy in (HOLD, DETACH, BOTH):
            yield Case("partitions per process", policy, per_process, per_process=per_process)


def _slots() -> Iterator[Case]:
    for slots in (0, 1, 2, 4, 8):
        for name, detach in (("extra slots only", False), ("extra slots and detaching", True)):
            yield Case("extra slots", Policy(name, 60.0, detach, slots), slots)


def _load() -> Iterator[Case]:
    for load in (0.3, 0.5, 0.7, 0.85, 0.95):
        for policy in (HOLD, DETACH, BOTH, CENTRAL):
            yield Case("load", policy, load, load=load)


SWEEPS: dict[str, Callable[[], Iterator[Case]]] = {
    "policies": _policies,
    "long after": _long_after,
    "partitions per process": _partitions,
    "extra slots": _slots,
    "load": _load,
}


def run(sweep: str, report: Callable[[str], None]) -> list[dict[str, object]]:
    """Run every case of a sweep. Return the summaries as plain values."""
    rows: list[dict[str, object]] = []
    for case in SWEEPS[sweep]():
        report(f"{sweep}: {case.policy.name}, {case.varied:g}, {case.lengths.name}")
        row = {"sweep": sweep, "policy": case.policy.name, "varied": case.varied, "lengths": case.lengths.name}
        rows.append(row | {name: round(value, 5) for name, value in case.run()._asdict().items()})
    return rows
