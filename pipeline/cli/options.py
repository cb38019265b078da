"""The options of the commands and their parsers. This module does not import Spark, so that ``--help`` is fast."""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from pipeline.uris import absolute
from worker.core.durations import duration
from worker.settings.masking import looks_secret

if TYPE_CHECKING:
    from collections.abc import Callable

_CATALOG = re.compile(r"\w+\.\w+")
_JOB = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Duration(click.ParamType[float]):
    """A duration as in the settings, parsed to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else duration(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


class Uri(click.ParamType[str]):
    """A URI or a path. Paths become absolute, because the JVM may run in another directory."""

    name = "uri"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        return absolute(str(value))


class Lake(Uri):
    """A URI, a path or ``catalog.schema``."""

    name = "lake"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        return text if _CATALOG.fullmatch(text) else super().convert(text, param, ctx)


class JobName(click.ParamType[str]):
    """A name that is valid in keys, paths and transactional ids."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _JOB.fullmatch(str(value)) is None or set(str(value)) == {"."}:
            self.fail(f"{value!r} must have up to 100 letters, digits, dots, hyphens and underscores", param, ctx)
        return str(value)


class Day(click.ParamType[dt.date]):
    """A date."""

    name = "date"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> dt.date:
        try:
            return value if isinstance(value, dt.date) else dt.date.fromisoformat(value)
        except ValueError:
            self.fail(f"{value!r} must be a date such as 2026-01-31", param, ctx)


class Pair(click.ParamType[tuple[str, str]]):
    """``name=value``."""

    name = "name=value"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        if isinstance(value, tuple):
            return value
        name, equals, content = str(value).partition("=")
        if not equals or not name:
            self.fail("must be name=value" if looks_secret(name) else f"{value!r} must be name=value", param, ctx)
        return name, content


def no_secrets(context: click.Context, parameter: click.Parameter, pairs: Any) -> Any:
    """Return the pairs. Refuse secrets, because every user of the machine can see arguments."""
    by_argument = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    for name, _ in pairs:
        if by_argument and looks_secret(name):
            variable = f"PIPELINE_{str(parameter.name).upper()}"
            raise click.BadParameter(f"{name} is a secret: set {variable} or {variable}_FILE instead")
    return pairs


def apply(*options: Any) -> Callable[[Any], Any]:
    """Return the options as one decorator, in the order in which help shows them."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


job = click.option("--job", required=True, type=JobName(), help="Name of the job; part of keys and paths.")
lake = click.option(
    "--lake", required=True, type=Lake(), help="Root of all tables: a directory, a URI, or catalog.schema."
)
files = click.option(
    "--files",
    type=Uri(),
    help="With --lake catalog.schema: the folder for metadata, checkpoints and audits. Default: below the schema.",
)
table_format = click.option(
    "--table-format",
    type=click.Choice(["parquet", "delta", "iceberg"]),
    default="parquet",
    show_default=True,
    help="Format of all tables.",
)
master = click.option("--master", help="Spark master. Default: the one of spark-submit, or local[*].")
progress = click.option(
    "--progress",
    type=click.Choice(["auto", "bar", "json", "off"]),
    default="auto",
    show_default=True,
    help="auto: a bar on a terminal, else JSON lines.",
)
common = apply(job, lake, table_format, files, master, progress)
kafka = click.option(
    "--kafka-option",
    type=Pair(),
    multiple=True,
    metavar="NAME=VALUE",
    callback=no_secrets,
    help="Property of both Kafka clients; java.NAME or librdkafka.NAME sets it for one. May be repeated. "
    "Secrets: PIPELINE_KAFKA_OPTION or its file, one per line.",
)
chunk = click.option(
    "--chunk", type=click.IntRange(1, 100_000), default=10_000, show_default=True, help="Requests per transaction."
)
sending = apply(
    click.option(
        "--semantics",
        type=click.Choice(["exactly-once", "at-least-once"]),
        default="exactly-once",
        show_default=True,
        help="at-least-once uses Spark's own sink: faster, but a retried task sends its requests twice.",
    ),
    chunk,
    click.option(
        "--rate", type=click.FloatRange(0, min_open=True), help="Send at most this number of requests per second."
    ),
)
new_run = click.option(
    "--new-run", is_flag=True, help="Begin a new run: other data than before under the same job name."
)
out = click.option("--out", type=Uri(), help="Folder for audit.json. Default: the job's folder under audit.")
after = apply(
    click.option("--after", type=JobName(), metavar="JOB", help="The job whose handlers sent the requests."),
    click.option(
        "--follow-ups",
        type=click.IntRange(1),
        default=1,
        show_default=True,
        metavar="N",
        help="With --after: number of requests that each of its successful answers has sent.",
    ),
)
fail_on_failed = click.option(
    "--fail-on-failed", type=click.IntRange(1), metavar="N", help="Exit with 1 if N or more answers are failures."
)


def source(*, required: bool) -> Callable[[Any], Any]:
    """Return the options that describe the table of work."""
    return apply(
        click.option("--input", type=Uri(), help="The table of work: a path, a URI or a JDBC URL."),
        click.option("--input-table", metavar="NAME", help="Or its name in a catalog: catalog.schema.table."),
        click.option(
            "--input-format",
            type=click.Choice(["parquet", "csv", "json", "jdbc", "delta"]),
            help="Default: the suffix of the name decides, else parquet.",
        ),
        click.option(
            "--input-option",
            type=Pair(),
            multiple=True,
            metavar="NAME=VALUE",
            callback=no_secrets,
            help="Option of Spark's reader; may be repeated. Secrets: PIPELINE_INPUT_OPTION or its file, one per line.",
        ),
        click.option("--id", required=required, metavar="COL", help="Column with a unique id."),
        click.option("--payload", required=required, metavar="COL", help="Column with the payload for the handler."),
        click.option(
            "--deadline", metavar="COL", help="Column with the deadline, after which a request does not start."
        ),
        click.option("--parts", type=click.IntRange(1, 10_000), help="Number of parts to send in parallel."),
    )
