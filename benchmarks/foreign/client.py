"""The client of the queue peers. It reads JSON from standard input and writes JSON to standard output."""

from __future__ import annotations

import json
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    Send = Callable[[str, str], object]


def main(send: Send, one_trip: Send) -> None:
    """Run the action in the arguments.

    ``fill`` sends a task for each payload of ``{"handler": …, "payloads": [[payload, count], …]}``.

    ``round-trips`` sends one empty task at a time, each after its gap, of ``{"gaps": [seconds, …], "seconds": …}``. It
    starts none after that many seconds, and prints the times.
    """
    given = json.load(sys.stdin)
    if sys.argv[1] == "fill":
        for payload, count in given["payloads"]:
            for _ in range(count):
                send(given["handler"], payload)
    else:
        times = []
        deadline = time.monotonic() + given["seconds"]
        for gap in given["gaps"]:
            time.sleep(gap)
            if time.monotonic() > deadline:
                break
            begin = time.perf_counter()
            one_trip("nothing", "")
            times.append(time.perf_counter() - begin)
        json.dump(times, sys.stdout)
