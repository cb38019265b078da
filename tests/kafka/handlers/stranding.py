"""A handler in processes whose Kafka clients report no brokers once a file names their pid."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from worker.kafka import broker_watch
from worker.kafka.broker_watch import BrokerWatch

FILE = Path(os.environ["STRANDED_PID_FILE"])

broker_watch.INTERVAL_MS = 200
_read = BrokerWatch._read


def _read_or_lose_all(watch: BrokerWatch, statistics: str) -> None:
    lost = FILE.exists() and FILE.read_text(encoding="utf-8") == str(os.getpid())
    _read(watch, "{}" if lost else statistics)


BrokerWatch._read = _read_or_lose_all  # type: ignore[method-assign,assignment]


def handle(_request: Any, _context: Any) -> bytes:
    time.sleep(0.1)
    return b""
