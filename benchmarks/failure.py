"""The reasons of missing figures."""

from __future__ import annotations

from typing import NamedTuple

from benchmarks.environments import MissingError
from benchmarks.names import PEERS
from benchmarks.processes import EndedError


class Failure(NamedTuple):
    """The reason why a program has no figures in a workload. ``program`` is empty if the workload itself failed."""

    workload: str
    program: str
    error: Exception

    def __str__(self) -> str:
        kind = "" if isinstance(self.error, EndedError | MissingError) else f"{type(self.error).__name__}: "
        return f"{self.workload}: {self.program + ': ' if self.program else ''}{kind}{self.error}"

    @property
    def fatal(self) -> bool:
        """Return whether the suite fails. It does not if only a peer failed: the document then names the failure."""
        return self.program not in PEERS
