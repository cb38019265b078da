"""The configuration of the process that reads the state topic: plain values."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ReaderConfig:
    """``properties`` are those of a client and contain secrets."""

    address: str
    topic: str
    partitions: int
    properties: dict[str, Any] = field(repr=False)
    log_level: str
    log_format: str
