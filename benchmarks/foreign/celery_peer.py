"""The Celery peer: the tasks for its workers, and a client that fills the queue or measures round trips.

Runs in a separate environment. The client is ``python -m benchmarks.foreign.celery_peer fill|round-trips``, see
client.py.
"""
# mypy: disable-error-code="import-not-found,untyped-decorator"

from __future__ import annotations

import os

from celery import Celery

from benchmarks.foreign import client
from benchmarks.foreign.work import TaskReport, do

SERVER = os.environ["BENCH_REDIS"]

app = Celery("bench", broker=os.environ.get("BENCH_RABBIT", f"{SERVER}/0"), backend=f"{SERVER}/1")
app.conf.update(
    task_acks_late=True,  # at-least-once, like the worker: acknowledged when done instead of when received
    task_reject_on_worker_lost=True,  # and also when the process that ran it dies
    worker_prefetch_multiplier=int(os.environ["BENCH_PREFETCH"]),
    broker_connection_retry_on_startup=True,
)


@app.task(name="run")
def run(handler: str, payload: str) -> TaskReport:
    """Run one task."""
    return do(handler, payload)


def one_trip(handler: str, payload: str) -> None:
    """Send a task and wait for its result, which Redis announces."""
    run.delay(handler, payload).get()


if __name__ == "__main__":
    app.control.purge()  # for RabbitMQ; the suite has emptied Redis
    client.main(run.delay, one_trip)
