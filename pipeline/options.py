"""The options of the commands, and how their texts become values. No Spark here: ``--help`` must be quick."""

from __future__ import annotations

import datetime as dt
import os
import re
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from worker.settings.masking import looks_secret
from worker.settings.values import duration

if TYPE_CHECKING:
    from collections.abc import Callable

_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_JOB = re.compile(r"[A-Za-z0-9._-]{1,100}")


class Duration(click.ParamType[float]):
    """A duration as the settings write it, in seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return value if isinstance(value, float) else duration(value)
        except ValueError as error:
            self.fail(f"{value!r} {error}", param, ctx)


class Place(click.ParamType[str]):
    """A URI, or a path, made absolute: the JVM need not stand where the user does."""

    name = "uri"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ARG002
        text = str(value).rstrip("/") or "/"
        return text if _URI.match(text) else os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - keeps links


class Job(click.ParamType[str]):
    """A name that can stand in keys, paths and the ids of transactions."""

    name = "job"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if _JOB.fullmatch(str(value)) is None or set(str(value)) == {"."}:
            self.fail(f"{value!r} must be up to 100 letters, digits, dots, hyphens and underscores", param, ctx)
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
    """Arguments are seen by every user of the machine: secrets come by the environment or a file."""
    by_argument = context.get_parameter_source(str(parameter.name)) is ParameterSource.COMMANDLINE
    for name, _ in pairs:
        if by_argument and looks_secret(name):
            raise click.BadParameter(
                f"{name} is a secret: set it by PIPELINE_INPUT_OPTION or PIPELINE_INPUT_OPTION_FILE"
            )
    return pairs


def apply(*options: Any) -> Callable[[Any], Any]:
    """The options as one decorator, in the order in which help shows them."""

    def decorate(function: Any) -> Any:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


job = click.option(
    "--job", required=True, type=Job(), help="Name of the job: in the keys of its requests and in paths."
)
lake = click.option(
    "--lake", required=True, type=Place(), help="Root of all tables: a directory, or a URI of Hadoop's."
)
table_format = click.option(
    "--table-format",
    type=click.Choice(["parquet", "delta"]),
    default="parquet",
    show_default=True,
    help="Of all tables.",
)
master = click.option("--master", help="Where Spark runs; left out: as spark-submit says, or local[*].")
progress = click.option(
    "--progress",
    type=click.Choice(["auto", "bar", "json", "off"]),
    default="auto",
    show_default=True,
    help="auto: a bar on a terminal, else JSON lines.",
)
common = apply(job, lake, table_format, master, progress)


def source(*, required: bool) -> Callable[[Any], Any]:
    """The options that describe the table of work."""
    return apply(
        click.option("--input", required=required, type=Place(), help="The table: a path or URI; jdbc: its URL."),
        click.option(
            "--input-format",
            type=click.Choice(["parquet", "csv", "json", "jdbc", "delta"]),
            help="Left out: as the name's ending says, else parquet.",
        ),
        click.option(
            "--input-option",
            type=Pair(),
            multiple=True,
            metavar="NAME=VALUE",
            callback=no_secrets,
            help="Of Spark's reader; may be repeated. Secrets by PIPELINE_INPUT_OPTION or a file, one on a line.",
        ),
        click.option("--id", required=required, metavar="COL", help="Column that tells the rows apart."),
        click.option("--payload", required=required, metavar="COL", help="Column with what the handler gets."),
        click.option("--deadline", metavar="COL", help="Column with the time after which a request is not begun."),
        click.option("--parts", type=click.IntRange(1, 10_000), help="Into how many parts a submit is divided."),
    )
