"""A program that submits requests without end, for the tests of the client to kill. Prints each payload with its id."""

from __future__ import annotations

import itertools
import sys

import worker

with worker.Client(max_in_flight=500) as client:
    for start in itertools.count(0, 100):
        futures = {str(number): client.submit(str(number)) for number in range(start, start + 100)}
        for payload, future in futures.items():
            sys.stdout.write(f"{payload} {future.id}\n")
        sys.stdout.flush()
