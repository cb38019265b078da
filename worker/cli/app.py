"""The command line: which commands there are, and how they end."""

from __future__ import annotations

import importlib
import importlib.metadata
import os

import click

from worker.cli.console import INTERRUPTED
from worker.errors import WorkerError
from worker.logs import complain

COMMANDS = {  # imported when they are used: the supervisor needs no tools, the tools no supervisor
    "run": "worker.cli.run:run",
    "submit": "worker.cli.submit:submit",
    "status": "worker.cli.status:status",
    "dlq": "worker.cli.dlq:dlq",
    "doctor": "worker.cli.doctor:doctor",
}

EPILOG = """\b
Everything is configured by environment variables. Every command needs
  KAFKA_BOOTSTRAP_SERVER  KAFKA_REQUEST_TOPIC  KAFKA_ACK_TOPIC  KAFKA_CONSUMER_GROUP_ID
and run also
  WORKER_HANDLER=package.module:function
"""


class Commands(click.Group):
    """The commands, each imported when it is used."""

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
    """Run the command that the arguments name; returns its exit code. What the user can mend ends in one line."""
    try:
        code = cli.main(prog_name="worker", standalone_mode=False)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except WorkerError as error:
        for line in str(error).splitlines():
            complain(line)
        return int(error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        click.echo("aborted", err=True)
        return INTERRUPTED
    except BrokenPipeError:  # whoever read our output has gone, as in `worker dlq list | head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    return int(code or 0)
