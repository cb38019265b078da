"""The command line: options become settings, a job runs in a session, and its result is a line of JSON on stdout."""

from __future__ import annotations

import importlib
import os
import traceback
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pipeline.cli import options
from pipeline.cli.environment import options as from_environment
from pipeline.cli.exit_codes import ExitCode
from pipeline.errors import AuditFailedError, SettingsError, format_error, is_unreachable

if TYPE_CHECKING:
    from pipeline.settings import KafkaSettings, Source

EPILOG = """\b
Brokers and topics come from the worker's variables:
  KAFKA_BOOTSTRAP_SERVER  KAFKA_REQUEST_TOPIC  KAFKA_ACK_TOPIC  [KAFKA_DEAD_LETTER_TOPIC  KAFKA_CONFIG_<KEY>]
You can also set every option --some-name as PIPELINE_SOME_NAME, or in the file PIPELINE_SOME_NAME_FILE.

\b
Exit codes: 0 done, or proved · 1 the job cannot continue, or disproved · 2 undecided · 3 the audit
itself failed · 4 Kafka or a topic is not reachable · 64 wrong usage · 130 interrupted.
"""
_SEPARATED = {
    "input_option": "\n",
    "kafka_option": "\n",
}  # options that may be repeated, and what separates them in the environment
_NOT_WITH_RESEND = {
    *("input", "input_table", "input_format", "input_option", "id", "payload", "deadline", "parts"),
    *("semantics", "new_run", "resume"),
}


@click.group(epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="kafka-task-worker", prog_name="pipeline")
def cli() -> None:
    """Turn a table into requests and the answers into a table, and prove that no answer is missing."""


def _example(text: str) -> str:
    return f"\b\nExample:\n  {text}"


# ---------------------------------------------------------------- the commands


@cli.command(
    epilog=_example("pipeline plan --job tuesday --lake /data/lake --input work.parquet --id id --payload conf")
)
@options.common
@options.source(required=True)
@options.new_run
def plan(**given: Any) -> int:
    """Number the rows of a table and write them, once, as the manifest of a job."""
    source = _source(given)
    if source is None:
        raise click.UsageError("--input or --input-table is missing: one of them must name the table")
    return _run("plan", "PlanSettings", source=source, **given)


@cli.command(epilog=_example("pipeline submit --job tuesday --lake /data/lake --rate 1000"))
@options.common
@options.kafka
@options.source(required=False)
@options.sending
@options.new_run
@click.option("--dry-run", is_flag=True, help="Report what would be sent, but send nothing.")
@click.option(
    "--resume/--no-resume", default=True, show_default=True, help="Continue after an earlier submit that stopped."
)
@click.option("--resend", type=click.Choice(["missing"]), help="Send only what the last audit found missing.")
def submit(**given: Any) -> int:
    """Send the planned requests. With --input, plan first; a job that is already planned needs the same input."""
    if given["resend"]:
        _refuse_beside_resend()
    source = _source(given)
    return _run("submit", "SubmitSettings", kafka=_kafka(given), source=source, **given)


@cli.command(epilog=_example("pipeline collect --job tuesday --lake /data/lake --available-now"))
@options.common
@options.kafka
@click.option("--available-now", is_flag=True, help="Collect everything available now, and stop.")
@click.option("--follow", is_flag=True, help="Collect until SIGTERM.")
@click.option(
    "--trigger", type=options.Duration(), default="10s", show_default=True, help="Time between batches of --follow."
)
@click.option("--max-offsets", type=click.IntRange(1), default=5_000_000, show_default=True, help="Records per batch.")
@click.option("--allow-data-loss", is_flag=True, help="Continue even if records were deleted; the audit reports it.")
def collect(**given: Any) -> int:
    """Collect answers and dead letters into the bronze table."""
    if given["available_now"] == given["follow"]:
        raise click.UsageError("give either --available-now or --follow")
    return _run("collect", "CollectSettings", kafka=_kafka(given), **given)


@cli.command(epilog=_example("pipeline answers --job tuesday --lake /data/lake"))
@options.common
@options.kafka
def answers(**given: Any) -> int:
    """Write the table of answers: one row for each request, with its first answer."""
    # Needed only without a manifest, or where a replay may explain a second answer.
    return _run("answers", "AnswersSettings", kafka=_kafka_if_set(given), **given)


@cli.command(epilog=_example("pipeline audit --job tuesday --lake /data/lake --html --wait 10m"))
@options.common
@options.kafka
@options.out
@click.option("--html", is_flag=True, help="Write report.html too.")
@click.option(
    "--wait",
    type=options.Duration(),
    default="0s",
    show_default=True,
    help="How long to wait for open transactions and for a running collect.",
)
@options.after
@options.fail_on_failed
def audit(**given: Any) -> int:
    """Prove that every request was answered exactly once, or list those that were not."""
    limit = given.pop("fail_on_failed")
    kafka = _kafka(given)
    return _judging(lambda: _run("audit", "AuditSettings", limit=limit, kafka=kafka, **given))


@cli.command(
    "run", epilog=_example("pipeline run --job tuesday --lake /data/lake --input w.parquet --id id --payload conf")
)
@options.common
@options.kafka
@options.source(required=False)
@options.sending
@options.new_run
@options.out
@click.option("--timeout", type=options.Duration(), help="Audit after this time even if answers are missing.")
@options.fail_on_failed
def run_job(**given: Any) -> int:
    """Submit, collect the answers, write the tables, audit, and write the report.

    You can stop the command and run it again at any time. Its exit code is that of the audit.
    """
    source, limit = _source(given), given.pop("fail_on_failed")
    return _run("run", "RunSettings", limit=limit, kafka=_kafka(given), source=source, **given)


@cli.command(epilog=_example("pipeline replay --job tuesday --lake /data/lake --where \"error_type = 'TimeoutError'\""))
@options.common
@options.kafka
@click.option("--where", metavar="SQL", help="Condition on the columns of the dead letters.")
@click.option("--max-replays", type=click.IntRange(1), default=3, show_default=True, help="Replays per request.")
@options.chunk
@click.option("--dry-run", is_flag=True, help="Report what would be sent, but send nothing.")
def replay(**given: Any) -> int:
    """Send dead letters of the job back to the topics they came from, each once."""
    return _run("replay", "ReplaySettings", kafka=_kafka(given), **given)


@cli.command(epilog=_example("pipeline compact --job tuesday --lake /data/lake --before 2026-11-01"))
@options.common
@options.kafka
@click.option("--before", required=True, type=options.Day(), help="Compact the days before this one.")
def compact(**given: Any) -> int:
    """Merge the files of past days in the bronze table into few files."""
    return _run("compact", "CompactSettings", kafka=_kafka_if_set(given), **given)


# ---------------------------------------------------------------- from options to settings


def _refuse_beside_resend() -> None:
    """Raise UsageError if an option is given that describes other requests than those of the audit."""
    context = click.get_current_context()
    given = [
        parameter
        for parameter in context.command.params
        if parameter.name in _NOT_WITH_RESEND
        and context.get_parameter_source(parameter.name) is not ParameterSource.DEFAULT
        and context.params[parameter.name] != parameter.default
    ]
    if given:
        # An option that is on by default is given to switch it off.
        names = [(parameter.secondary_opts or parameter.opts)[0] for parameter in given]
        raise click.UsageError(f"--resend takes the requests from the manifest: leave out {', '.join(names)}")


def _run(command: str, settings: str, limit: int | None = None, **values: Any) -> int:
    made = getattr(importlib.import_module("pipeline.settings"), settings)(**values)
    start = importlib.import_module("pipeline.cli.start")
    return int(start.run(command, made, limit))


def _judging(judge: Any) -> int:
    """Return the exit code of an audit. An unexpected error is no verdict, so it gets a separate exit code."""
    try:
        return int(judge())
    except (SettingsError, click.ClickException):
        raise
    except Exception as error:
        if is_unreachable(error):
            raise
        return _audit_failed(error)


def _audit_failed(error: BaseException | None) -> int:
    if not isinstance(error, Exception) or not _echo(error):
        traceback.print_exception(error)
    return ExitCode.AUDIT_FAILED


def _kafka(given: dict[str, Any]) -> KafkaSettings:
    from pipeline.settings import KafkaSettings  # noqa: PLC0415 - importing pydantic is slow

    return KafkaSettings.load(os.environ).with_options(given.pop("kafka_option"))


def _kafka_if_set(given: dict[str, Any]) -> KafkaSettings | None:
    if any(name.startswith("KAFKA_BOOTSTRAP_SERVER") for name in os.environ):
        return _kafka(given)
    del given["kafka_option"]
    return None


def _source(given: dict[str, Any]) -> Source | None:
    """Remove the options that describe the table of work and return it; None if there is no input."""
    from pipeline.settings import Source, format_of  # noqa: PLC0415

    names = {"input": "uri", "input_format": "format", "id": "id", "payload": "payload"}
    values = {name: given.pop(option) for option, name in names.items()}
    values |= {name: given.pop(name) for name in ("deadline", "parts")}
    pairs, table = given.pop("input_option"), given.pop("input_table")
    if values["uri"] is not None and table is not None:
        raise click.UsageError("give either --input or --input-table")
    if values["uri"] is None and table is None:
        return None
    if values["id"] is None or values["payload"] is None:
        raise click.UsageError(f"{'--input' if table is None else '--input-table'} needs --id and --payload")
    if table is not None:
        values |= {"uri": table, "format": "table"}
    values["format"] = values["format"] or format_of(values["uri"])
    return Source(options=pairs, **values)


def _defaults() -> dict[str, dict[str, Any]]:
    """Return the values in the environment, for each command. Options of other commands are ignored."""
    names = {parameter.name for command in cli.commands.values() for parameter in command.params if parameter.name}
    found = from_environment(os.environ, names)
    split = {name: text.split(_SEPARATED[name]) if name in _SEPARATED else text for name, text in found.items()}
    return dict.fromkeys(cli.commands, split)


def run() -> int:
    """Run the command in the arguments and return its exit code. User errors are printed as one line."""
    try:
        return int(cli.main(prog_name="pipeline", standalone_mode=False, default_map=_defaults()) or 0)
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE if isinstance(error, click.UsageError) else ExitCode.FAILED
    except (click.Abort, KeyboardInterrupt):
        click.echo("pipeline: interrupted", err=True)
        return ExitCode.INTERRUPTED
    except AuditFailedError as error:
        return _audit_failed(error.__cause__)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return ExitCode.FAILED
    except Exception as error:
        if not _echo(error):
            raise
        return _code_of(error)


def _code_of(error: Exception) -> int:
    if isinstance(error, SettingsError):
        return ExitCode.USAGE
    return ExitCode.UNREACHABLE if is_unreachable(error) else ExitCode.FAILED


def _echo(error: Exception) -> bool:
    """Print an error in a line or two. Return False for a bug of this program, which needs a traceback."""
    lines = format_error(error)
    for line in lines or []:
        click.echo(f"pipeline: {line}", err=True)
    return lines is not None
