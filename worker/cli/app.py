"""The command line, with its commands and exit codes."""

from __future__ import annotations

import importlib
import importlib.metadata
import os

import click

from worker.cli.console import INTERRUPTED
from worker.errors import WorkerError
from worker.logs import print_error

COMMANDS = {  # imported on use: the supervisor does not need the tools, the tools do not need the supervisor
    "run": "worker.cli.run:run",
    "submit": "worker.cli.submit:submit",
    "answer": "worker.cli.answer:answer",
    "wait": "worker.cli.wait:wait",
    "status": "worker.cli.status:status",
    "tasks": "worker.cli.tasks:tasks",
    "top": "worker.cli.top:top",
    "cancel": "worker.cli.cancel:cancel",
    "stack": "worker.cli.stack:stack",
    "dlq": "worker.cli.dlq:dlq",
    "doctor": "worker.cli.doctor:doctor",
}

EPILOG = """\b
Environment variables configure everything. Every command needs
  KAFKA_BOOTSTRAP_SERVER  KAFKA_REQUEST_TOPIC  KAFKA_ACK_TOPIC  KAFKA_CONSUMER_GROUP_ID
and `worker run` also needs
  WORKER_HANDLER=package.module:function

\b
Example:
  export KAFKA_BOOTSTRAP_SERVER=127.0.0.1:9092 KAFKA_REQUEST_TOPIC=requests
  export KAFKA_ACK_TOPIC=answers KAFKA_CONSUMER_GROUP_ID=workers
  export WORKER_HANDLER=examples.hello:greet
  worker doctor && worker run
"""


class Commands(click.Group):
    """The commands; each is imported on use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002 - click's
        module, _, name = COMMANDS.get(cmd_name, "").partition(":")
        command: click.Command | None = getattr(importlib.import_module(module), name) if module else None
        return command


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="kafka-task-worker", prog_name="worker")
def cli() -> None:
    """Run CPU-bound tasks of unknown length from Kafka topics."""


def run() -> int:
    """Run the command in the arguments and return its exit code. User errors are printed as one line."""
    try:
        code = cli.main(prog_name="worker", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except WorkerError as error:
        for line in str(error).splitlines():
            print_error(line)
        return int(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("aborted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has ended, as in `worker dlq list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as error:  # such as a full disk
        print_error(": ".join(filter(None, (error.filename, error.strerror or str(error)))))
        return 1
    return int(code or 0)
