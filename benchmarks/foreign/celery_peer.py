"""Celery's side of the suite: the tasks for its workers, and a client that fills the queue or measures round trips.

Runs in an environment of its own. The client: ``python -m benchmarks.foreign.celery_peer fill|trips``, see client.py.
"""
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os

from celery import Celery

from benchmarks.foreign import client
from benchmarks.foreign.work import Told, do

SERVER = os.environ["BENCH_REDIS"]

app = Celery("bench", broker=f"{SERVER}/0", backend=f"{SERVER}/1")
app.conf.update(
    task_acks_late=True,  # at least once, as the worker: acknowledged when done, not when taken
    task_reject_on_worker_lost=True,  # and also when the process that ran it dies
    worker_prefetch_multiplier=int(os.environ["BENCH_PREFETCH"]),
    broker_connection_retry_on_startup=True,
)


@app.task(name="run")
def run(handler: str, payload: str) -> Told:
    """One task."""
    return do(handler, payload)


def one_trip(handler: str, payload: str) -> None:
    """Send a task and wait for its result, which Redis announces."""
    run.delay(handler, payload).get()


if __name__ == "__main__":
    client.main(run.delay, one_trip)
