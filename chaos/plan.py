"""The plan of a run, drawn from its seed: the same options give the same plan on every machine."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, NamedTuple

from chaos import faults, requests

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from chaos.faults import Kind
    from chaos.options import Options
    from chaos.requests import Item

# Seconds after a fault during which its place has no other fault.
RECOVERY = {
    "process": 0.0,
    "replica": 4.0,
    "network": 1.0,
    "clock": 2.0,
    "broker": 8.0,
    "store": 4.0,
    "pipeline": 8.0,
}


class Fault(NamedTuple):
    """One fault: ``at`` seconds after the load began, for ``seconds``. Targets are numbers modulo the existing ones."""

    number: int
    at: float
    kind: Kind
    replica: int
    slot: int
    broker: int  # -1: all
    seconds: float

    def __str__(self) -> str:
        targets = {
            "process": f"process {self.slot} of replica {self.replica}",
            "replica": f"replica {self.replica}",
            "network": f"replica {self.replica}, {'all brokers' if self.broker < 0 else f'broker {self.broker}'}",
            "clock": f"replica {self.replica}",
            "broker": f"broker {self.broker}",
            "store": "the store",
            "pipeline": f"process {self.slot} of the driver",
        }
        length = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.at:6.1f} s  #{self.number} {self.kind.name}: {targets[self.kind.area]}{length}"


class Plan(NamedTuple):
    """A run before its execution."""

    options: Options
    faults: Sequence[Fault]
    items: Sequence[Item]
    seconds: float  # until the last fault is over and the last request is sent


def draw(options: Options, *, rights: Collection[str]) -> Plan:
    """Draw the plan of these options. ``rights`` includes the faults that need them. Raise ValueError if it fails."""
    kinds = faults.available(
        options.mix, brokers=options.brokers, rights=rights, store=options.store, uses=options.uses
    )
    planned = list(_faults(options, kinds)) if kinds else []
    end = max([options.minutes * 60 if not options.faults else 0.0, *(one.at + one.seconds for one in planned)])
    return Plan(options, planned, requests.draw(options, end), end)


def _faults(options: Options, kinds: Sequence[Kind]) -> Iterable[Fault]:
    rng = random.Random(f"{options.seed}/faults")
    busy: dict[str, float] = {}
    now, number = 2.0, 0
    while number < options.faults if options.faults else now < options.minutes * 60:
        kind = rng.choices(kinds, [one.weight for one in kinds])[0]
        seconds = rng.choice(kind.lengths) * (options.session if kind.sessions else 1.0)
        replica, slot = rng.randrange(options.replicas), rng.randrange(options.processes)
        broker = _broker(rng, kind, options.brokers)
        gap = min(rng.expovariate(1 / options.gap), 4 * options.gap)
        records = _places(kind, replica, options.replicas)
        if any(busy.get(place, 0.0) > now for place in records):
            # The place is busy: advance the time, and draw again.
            now += 0.1
            continue
        busy |= dict.fromkeys(records, now + seconds + RECOVERY[kind.area])
        yield Fault(number, round(now, 2), kind, replica, slot, broker, seconds)
        number += 1
        now += gap


def _broker(rng: random.Random, kind: Kind, brokers: int) -> int:
    some = rng.randrange(brokers)
    everyone = rng.random() < 0.5  # noqa: PLR2004 - half of the cuts separate it from all brokers
    return -1 if kind.area == "network" and everyone else some


def _places(kind: Kind, replica: int, replicas: int) -> list[str]:
    """Return the places that are closed to other faults. Any number of processes may be killed or frozen at once."""
    if kind.name in ("rolling-restart", "rotate-credentials"):
        return [f"replica {number}" for number in range(replicas)]
    if kind.name == "scale":
        return ["further replica"]
    if kind.area == "replica":
        return [f"replica {replica}"]
    if kind.area == "network":
        return [f"network {replica}"]
    if kind.area == "clock":
        return [f"clock {replica}"]
    return {"broker": ["brokers"], "store": ["store"], "pipeline": ["pipeline"]}.get(kind.area, [])
