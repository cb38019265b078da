"""The rate at which a store completes requests, one after another: ``python -m tests.stores.speed [COUNT]``."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from tests.stores.postgres import running_postgres
from tests.stores.support import TOPIC, answer, results
from worker.stores.sql import SqlStore


def measure(url: str, count: int) -> float:
    """Return the requests per second: ``begin`` and ``commit`` with a result of 1 KB, each durable before the next."""
    store = SqlStore(url, "group")
    started = time.perf_counter()
    for offset in range(count):
        store.begin(TOPIC, offset).commit(answer(offset, b"x" * 1024))
    seconds = time.perf_counter() - started
    assert results(store) == list(range(count))
    store.close()
    return count / seconds


def main() -> None:
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 10_000
    with tempfile.TemporaryDirectory() as folder, running_postgres() as server:
        for url in (f"sqlite:///{Path(folder) / 'store.db'}", server.fresh()):
            sys.stdout.write(f"{url.partition(':')[0]}: {measure(url, count):,.0f} requests/s\n")


if __name__ == "__main__":
    main()
