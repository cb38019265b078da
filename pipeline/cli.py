"""The command line. Each command makes its settings, and only then imports what it does, and Spark with it."""

from __future__ import annotations

import importlib
import os
from typing import TYPE_CHECKING, Any

import click

from pipeline import options
from pipeline.environment import options as from_environment
from pipeline.errors import WorkerError, told

if TYPE_CHECKING:
    from pipeline.settings import KafkaSettings, Source

EPILOG = """\b
Brokers and topics come from the environment, as the worker's do:
  KAFKA_BOOTSTRAP_SERVER  KAFKA_REQUEST_TOPIC  KAFKA_ACK_TOPIC  [KAFKA_DEAD_LETTER_TOPIC  KAFKA_CONFIG_<KEY>]
Every option --some-name is also PIPELINE_SOME_NAME, or a file named by PIPELINE_SOME_NAME_FILE.

\b
Exit codes: 0 done · 1 the job cannot go on · 2 wrong options or settings · 4 Kafka or a topic
out of reach · 130 interrupted. audit: 0 proved · 1 disproved · 2 undecided.
"""
INTERRUPTED = 130
UNDECIDED = 2
_SEPARATED = {"input_option": "\n"}  # options that may be repeated, and what stands between them in the environment


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kafka-task-worker", prog_name="pipeline")
def cli() -> None:
    """Turn a table into requests and the answers into a table, and prove that none is missing."""


# ---------------------------------------------------------------- the commands


@cli.command()
@options.common
@options.source(required=True)
def plan(**given: Any) -> int:
    """Number the rows of a table and write them down as the manifest of a job, once."""
    return _run("plan", "PlanSettings", source=_source(given), **given)


@cli.command()
@options.common
@options.source(required=False)
@click.option(
    "--semantics",
    type=click.Choice(["exactly-once", "at-least-once"]),
    default="exactly-once",
    show_default=True,
    help="at-least-once is Spark's own sink: faster, and a task that is retried sends twice.",
)
@click.option(
    "--chunk", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Requests a transaction."
)
@click.option("--rate", type=click.FloatRange(0, min_open=True), help="At most so many requests a second.")
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
@click.option("--resume/--no-resume", default=True, show_default=True, help="Go on where an earlier submit stopped.")
def submit(**given: Any) -> int:
    """Send the planned requests. With --input, plan first; the input must be what was planned."""
    return _run("submit", "SubmitSettings", kafka=_kafka(), source=_source(given), **given)


@cli.command()
@options.common
@click.option("--available-now", is_flag=True, help="Collect what there is now, and stop.")
@click.option("--follow", is_flag=True, help="Collect until SIGTERM.")
@click.option(
    "--trigger", type=options.Duration(), default="10s", show_default=True, help="Between batches of --follow."
)
@click.option("--max-offsets", type=click.IntRange(1), default=200_000, show_default=True, help="Records in a batch.")
@click.option("--allow-data-loss", is_flag=True, help="Go on where records were deleted unread; the audit will say so.")
def collect(**given: Any) -> int:
    """Bring answers and dead letters into the bronze table."""
    if given["available_now"] == given["follow"]:
        raise click.UsageError("give one of --available-now and --follow")
    return _run("collect", "CollectSettings", kafka=_kafka(), **given)


@cli.command()
@options.common
def answers(**given: Any) -> int:
    """Make the table of answers: one row for each request, the first answer of each."""
    # Needed only for when requests were sent, and where there is no manifest.
    kafka = _kafka() if any(name.startswith("KAFKA_BOOTSTRAP_SERVER") for name in os.environ) else None
    return _run("answers", "AnswersSettings", kafka=kafka, **given)


@cli.command()
@options.common
@click.option("--out", type=options.Place(), help="Where audit.json goes; else the job's folder under audit.")
@click.option("--html", is_flag=True, help="Write report.html too.")
@click.option("--wait", type=options.Duration(), default="0s", show_default=True, help="For a decision, if it is open.")
def audit(**given: Any) -> int:
    """Prove that every request was answered exactly once, or name those that were not."""
    try:
        return _run("audit", "AuditSettings", kafka=_kafka(), **given)
    except Exception as error:  # noqa: BLE001 - faults of the program are raised again
        _tell(error)
        return UNDECIDED  # by whatever it was: nothing was proved or disproved


@cli.command()
@options.common
@click.option("--where", metavar="SQL", help="Condition on the letters' columns: error_type = 'TimeoutError'.")
@click.option("--max-replays", type=click.IntRange(1), default=3, show_default=True, help="How often for one request.")
@click.option(
    "--chunk", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Requests a transaction."
)
@click.option("--dry-run", is_flag=True, help="Only say what would be sent.")
def replay(**given: Any) -> int:
    """Send dead letters of the job back to where they came from, each once."""
    return _run("replay", "ReplaySettings", kafka=_kafka(), **given)


@cli.command()
@options.common
@click.option("--before", required=True, type=options.Day(), help="Days before this one are closed.")
def compact(**given: Any) -> int:
    """Put the closed days of the bronze table into few files."""
    return _run("compact", "CompactSettings", **given)


# ---------------------------------------------------------------- from options to settings


def _run(command: str, settings: str, **values: Any) -> int:
    made = getattr(importlib.import_module("pipeline.settings"), settings)(**values)
    return int(importlib.import_module(f"pipeline.{command}").run(made) or 0)


def _kafka() -> KafkaSettings:
    from pipeline.settings import KafkaSettings  # noqa: PLC0415 - pydantic takes its time

    return KafkaSettings.load(os.environ)


def _source(given: dict[str, Any]) -> Source | None:
    """What describes the table of work, taken out of the options; None if there is no input."""
    from pipeline.settings import Source, format_of  # noqa: PLC0415

    names = {"input": "uri", "input_format": "format", "id": "id", "payload": "payload"}
    values = {name: given.pop(option) for option, name in names.items()}
    values |= {name: given.pop(name) for name in ("deadline", "parts")}
    pairs = given.pop("input_option")
    if values["uri"] is None:
        return None
    if values["id"] is None or values["payload"] is None:
        raise click.UsageError("--input needs --id and --payload")
    values["format"] = values["format"] or format_of(values["uri"])
    return Source(options=pairs, **values)


def _defaults() -> dict[str, dict[str, Any]]:
    """What the environment says, for each command. Options of other commands are known and passed over."""
    names = {parameter.name for command in cli.commands.values() for parameter in command.params if parameter.name}
    found = from_environment(os.environ, names)
    split = {name: text.split(_SEPARATED[name]) if name in _SEPARATED else text for name, text in found.items()}
    return dict.fromkeys(cli.commands, split)


def run() -> int:
    """Run the command that the arguments name; returns its exit code. What the user can mend ends in one line."""
    try:
        return int(cli.main(prog_name="pipeline", standalone_mode=False, default_map=_defaults()) or 0)
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("pipeline: interrupted", err=True)
        return INTERRUPTED
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except Exception as error:  # noqa: BLE001 - faults of the program are raised again
        _tell(error)
        return int(error.exit_code) if isinstance(error, WorkerError) else 1


def _tell(error: Exception) -> None:
    """Say what went wrong in a line or two; what is a fault of the program goes on with its trace."""
    lines = told(error)
    if lines is None:
        raise error
    for line in lines:
        click.echo(f"pipeline: {line}", err=True)
