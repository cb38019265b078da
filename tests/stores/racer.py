"""A process that completes requests as fast as it can, in a race with others for the same requests.

``python -m tests.stores.racer URL COUNT``: prints "ready", waits for a line, ends when offset COUNT - 1 is complete.
"""

from __future__ import annotations

import os
import random
import sys
import time

from tests.stores.support import TOPIC, answer, write
from worker.stores.port import StaleOffsetError, StoreUnavailableError
from worker.stores.sql import SqlStore


def main() -> None:
    url, count = sys.argv[1], int(sys.argv[2])
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    store = SqlStore(url, "group")
    while (position := store.positions([TOPIC]).get(TOPIC, 0)) < count:
        try:
            attempt(store, position)
        except (StaleOffsetError, StoreUnavailableError):
            continue
    store.close()


def attempt(store: SqlStore, offset: int) -> None:
    transaction = store.begin(TOPIC, offset)
    try:
        write(transaction.handle, offset, os.getpid())
        if random.random() < 0.2:
            time.sleep(random.random() * 0.01)
        transaction.commit(answer(offset, str(os.getpid()).encode()))
    finally:
        transaction.rollback()


if __name__ == "__main__":
    main()
