"""The options of a run. They alone determine its plan."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

MANY_ATTEMPTS = 25  # if faults kill processes, so that innocent requests do not become dead letters
FEW_ATTEMPTS = 3  # the default, if only requests kill processes


@dataclass(frozen=True, slots=True)
class Options:
    """The options from which a run is drawn. Durations are in seconds."""

    seed: int
    guarantee: str = "at-least-once"
    ordering: str = "partition"
    protocol: str = "consumer"
    brokers: int = 1
    mix: str = "all"
    load: str = "mixed"
    store: str = ""
    faults: int = 0  # number of faults; 0: as many as fit into ``minutes``
    minutes: float = 1.0
    gap: float = 1.5  # average time from one fault to the next
    replicas: int = 2
    processes: int = 2
    session: float = 5.0
    attempts: int = 0  # 0: many under faults, few if only requests kill processes
    heartbeat: float = 0.5  # of the group, under the consumer protocol
    features: str = ""  # see chaos.features, joined by "+"

    @property
    def uses(self) -> frozenset[str]:
        """Return the features of the run."""
        return frozenset(filter(None, self.features.split("+")))

    @property
    def max_attempts(self) -> int:
        """Return ``WORKER_MAX_ATTEMPTS`` of the run."""
        return self.attempts or (FEW_ATTEMPTS if self.mix == "requests" else MANY_ATTEMPTS)

    @property
    def title(self) -> str:
        """Return the options that distinguish runs, in one line."""
        parts = [self.guarantee, self.ordering, self.protocol, f"{self.brokers} broker(s)", self.mix, self.load]
        more = [name for name in (self.store, self.features) if name]
        return ", ".join([*parts, *more, f"seed {self.seed}"])

    def as_json(self) -> dict[str, Any]:
        """Return the options for the record."""
        return asdict(self)
