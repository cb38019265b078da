"""A thread that follows topics while a test runs a command."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING, Any

from worker.kafka.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from worker.core.model import Partition, Record


@contextlib.contextmanager
def following(
    properties: dict[str, Any], starts: Mapping[Partition, int], react: Callable[[Record], None]
) -> Iterator[None]:
    """Call ``react`` on a thread for each record from ``starts`` on, until the context ends."""
    stop = threading.Event()

    def read() -> None:
        with contextlib.closing(Reader(properties, starts)) as reader:
            while not stop.is_set():
                for record in reader.poll(0.1):
                    react(record)

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
