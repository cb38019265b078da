"""A member of a group in its own process, to be killed. It prints its id and partitions when they change.

Arguments: the client's properties as JSON, and the topic.
"""

from __future__ import annotations

import json
import sys

import confluent_kafka as ck


def main(properties: str, topic: str) -> None:
    client = ck.Consumer(json.loads(properties))
    client.subscribe([topic])
    shown = None
    while True:
        client.poll(0.05)
        state = (client.memberid(), len(client.assignment()))
        if state != shown:
            shown = state
            print(json.dumps(state), flush=True)  # noqa: T201 - the test reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
