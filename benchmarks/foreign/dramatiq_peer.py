"""The Dramatiq peer: the actor for its workers, and a client that fills the queue or measures round trips.

Runs in a separate environment. The client is ``python -m benchmarks.foreign.dramatiq_peer fill|round-trips``, see
client.py.
"""
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker
from dramatiq.results import Results
from dramatiq.results.backends import RedisBackend

from benchmarks.foreign import client
from benchmarks.foreign.work import TaskReport, do

SERVER = os.environ["BENCH_REDIS"]

broker = RedisBroker(url=f"{SERVER}/0")
broker.add_middleware(Results(backend=RedisBackend(url=f"{SERVER}/1")))
dramatiq.set_broker(broker)


@dramatiq.actor(actor_name="run", store_results=True)
def run(handler: str, payload: str) -> TaskReport:
    """Run one task."""
    return do(handler, payload)


def one_trip(handler: str, payload: str) -> None:
    """Send a task and wait for its result, in a blocking call to Redis."""
    run.send(handler, payload).get_result(block=True)


if __name__ == "__main__":
    client.main(run.send, one_trip)
