"""Detects a client that has no broker left, or no longer sends heartbeats (docs/decisions/0074 and 0075)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

INTERVAL_MS = 10_000  # between two reports
REPORTS = 2  # without a broker, in a row: one may fall between the removal of the brokers and their return
# How the report marks a broker with an address. A client without brokers still lists its group coordinator.
_BROKERS = ('"source":"learned"', '"source":"configured"')
# How many requests the group coordinator was sent: heartbeats and plain commits. librdkafka 2.16 does not count
# heartbeats apart.
_TO_COORDINATOR = re.compile(r'"name":"GroupCoordinator".*?"tx":(\d+)')

log = structlog.get_logger("kafka")


class BrokerWatch:
    """Reads the statistics that a client reports while it is polled. Use a new watch for each client.

    ``stranded`` means that the client has lost the addresses of all brokers, the configured ones included. Only a new
    client helps. With ``logged``, the watch logs that. ``on_silence`` is called, in a poll, if the client has sent
    nothing to its group coordinator between two reports.
    """

    def __init__(self, *, logged: bool = True, on_silence: Callable[[], None] | None = None) -> None:
        self.stranded = False
        self._logged, self._on_silence = logged, on_silence
        self._sent = ""
        self._without = 0
        self._client = ""

    def watched(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return the client's properties with reports to this watch."""
        self._client = str(properties.get("client.id", ""))
        return {**properties, "statistics.interval.ms": INTERVAL_MS, "stats_cb": self._read}

    def _read(self, statistics: str) -> None:
        """Take a report, JSON of about 4 kB and 1 kB for each partition. The brokers are at its beginning."""
        self._without = 0 if any(mark in statistics for mark in _BROKERS) else self._without + 1
        if self._without >= REPORTS and not self.stranded:
            self.stranded = True
            if self._logged:
                log.warning("client.stranded", client=self._client)
        if self._on_silence is not None:
            found = _TO_COORDINATOR.search(statistics)
            sent = found[1] if found else ""
            if sent == self._sent:
                self._on_silence()
            self._sent = sent
