"""What will happen, drawn from the seed before anything does: the same options give the same plan, on any machine."""

from __future__ import annotations

import random
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from chaos import faults, load
from chaos.faults import BY_NAME

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from chaos.faults import Kind
    from chaos.load import Item

# Seconds that are left alone afterwards, at least.
RECOVERY = {
    "process": 0.0,
    "replica": 4.0,
    "network": 1.0,
    "broker": 8.0,
    "store": 4.0,
}


@dataclass(frozen=True, slots=True)
class Options:
    """What a run is made from, and what its results are kept under."""

    seed: int
    guarantee: str = "at-least-once"
    ordering: str = "partition"
    protocol: str = "consumer"
    brokers: int = 1
    mix: str = "all"
    load: str = "mixed"
    store: str = ""
    faults: int = 0  # this many, or
    minutes: float = 1.0  # as many as there is time for
    gap: float = 1.5  # seconds from one fault to the next, on average
    replicas: int = 2
    processes: int = 2
    session: float = 5.0

    @property
    def title(self) -> str:
        """In a line."""
        parts = [self.guarantee, self.ordering, self.protocol, f"{self.brokers} broker(s)", self.mix, self.load]
        return ", ".join([*parts, *([self.store] if self.store else []), f"seed {self.seed}"])

    def as_json(self) -> dict[str, Any]:
        """For the records."""
        return asdict(self)


class Fault(NamedTuple):
    """One fault: ``at`` seconds after the load began, for ``seconds``. Targets are numbers, modulo what is there."""

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
            "broker": f"broker {self.broker}",
            "store": "the store",
        }
        length = f" for {self.seconds:g} s" if self.seconds else ""
        return f"{self.at:6.1f} s  #{self.number} {self.kind.name}: {targets[self.kind.area]}{length}"


class Plan(NamedTuple):
    """A run before it happens."""

    options: Options
    faults: Sequence[Fault]
    items: Sequence[Item]
    seconds: float  # until the last fault is over and the last request sent


def draw(options: Options, *, root: bool) -> Plan:
    """The plan of these options. ``root``: what only root can do may happen."""
    kinds = faults.available(options.mix, brokers=options.brokers, root=root, store=options.store)
    planned = list(_faults(options, kinds)) if kinds else []
    end = max([options.minutes * 60 if not options.faults else 0.0, *(one.at + one.seconds for one in planned)])
    return Plan(options, planned, load.draw(options, end), end)


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
        places = _places(kind, replica, options.replicas)
        if any(busy.get(place, 0.0) > now for place in places):
            # Something else is going on there. With so little of it left to draw from, time has to pass.
            now += 0.1
            continue
        busy |= dict.fromkeys(places, now + seconds + RECOVERY[kind.area])
        yield Fault(number, round(now, 2), kind, replica, slot, broker, seconds)
        number += 1
        now += gap


def _broker(rng: random.Random, kind: Kind, brokers: int) -> int:
    some = rng.randrange(brokers)
    everyone = rng.random() < 0.5  # noqa: PLR2004 - half of the cuts are from all of them
    return -1 if kind.area == "network" and everyone else some


def _places(kind: Kind, replica: int, replicas: int) -> list[str]:
    """What a fault has for itself while it lasts. Any number of processes may be killed or frozen at once."""
    if kind.name == "rolling-restart":
        return [f"replica {number}" for number in range(replicas)]
    if kind.name == "scale":
        return ["further replica"]
    if kind.area == "replica":
        return [f"replica {replica}"]
    if kind.area == "network":
        return [f"network {replica}"]
    return {"broker": ["brokers"], "store": ["store"]}.get(kind.area, [])


def windows(found: Iterable[tuple[str, float, float]]) -> list[tuple[float, float]]:
    """When something happened that may be an excuse, from names, begins and ends."""
    return [(begin, end) for name, begin, end in found if not BY_NAME[name].clean]
