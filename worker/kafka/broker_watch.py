"""Detects a client that has no broker left and will never connect again (docs/decisions/0075)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import structlog

if TYPE_CHECKING:
    from collections.abc import Mapping

INTERVAL_MS = 10_000  # between two reports
REPORTS = 2  # without a broker, in a row: one may fall between the removal of the brokers and their return
# How the report marks a broker with an address. A client without brokers still lists its group coordinator.
_BROKERS = ('"source":"learned"', '"source":"configured"')

log = structlog.get_logger("kafka")


class BrokerWatch:
    """Reads the statistics that a client reports while it is polled. Use a new watch for each client.

    ``stranded`` means that the client has lost the addresses of all brokers, the configured ones included. Only a new
    client helps. With ``logged``, the watch logs that.
    """

    def __init__(self, *, logged: bool = True) -> None:
        self.stranded = False
        self._logged = logged
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
