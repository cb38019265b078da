"""``worker run``: runs one replica until SIGTERM."""

from __future__ import annotations

import os

import click

EPILOG = """\b
Example:
  export KAFKA_BOOTSTRAP_SERVER=127.0.0.1:9092 KAFKA_REQUEST_TOPIC=requests
  export KAFKA_ACK_TOPIC=answers KAFKA_CONSUMER_GROUP_ID=workers
  WORKER_HANDLER=examples.hello:greet worker run

\b
After SIGTERM or Ctrl-C no new task starts and running tasks finish. A second signal cancels them.
Exit codes: 0 drained · 1 crash of the supervisor · 2 invalid settings · 3 the handler cannot be
loaded · 4 broker or topics not reachable at start · 5 processes keep crashing · 6 running tasks
were cancelled.
"""


@click.command(epilog=EPILOG, short_help="Start the worker processes and run tasks.")
def run() -> int:
    """Start the worker processes and run tasks until SIGTERM."""
    # Imported here, so that --help needs only click.
    from worker.settings import Settings  # noqa: PLC0415
    from worker.supervisor.run import run as run_replica  # noqa: PLC0415

    return int(run_replica(Settings.load(os.environ)))
