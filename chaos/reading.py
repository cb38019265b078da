"""The common parts of the suite's readers: clients for committed records, and a thread that reads in a context."""

from __future__ import annotations

import threading
import uuid
from abc import ABC, abstractmethod
from typing import Any, Self

from confluent_kafka import Consumer

SILENT_SECONDS = 10.0  # seconds without a record until a reader creates a new client


def reading_client(bootstrap: str) -> Consumer:
    """Return a client for committed records that reads assigned partitions from the beginning."""
    settings: dict[str, Any] = {"bootstrap.servers": bootstrap, "group.id": f"reader-{uuid.uuid4().hex}"}
    settings |= {"log_level": 0, "topic.metadata.refresh.interval.ms": 5_000, "fetch.wait.max.ms": 100}
    settings |= {"isolation.level": "read_committed", "enable.auto.commit": False}
    return Consumer({**settings, "auto.offset.reset": "earliest", "message.max.bytes": 20_000_000})


class Reading(ABC):
    """A reading thread, to use as a context manager. Leaving it sets ``_over``, which ``_read`` must check."""

    def __init__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._read)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    @abstractmethod
    def _read(self) -> None:
        """Read until the context ends."""
