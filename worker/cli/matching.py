"""The option ``--match`` of the ``worker dlq`` commands."""

from __future__ import annotations

from typing import Any

import click

from worker.cli.dead_letters import MATCHABLE

FIELDS = ", ".join(MATCHABLE)


class Match(click.ParamType[tuple[str, str]]):
    """Parses ``field=pattern``."""

    name = "field=pattern"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        field, equals, pattern = str(value).partition("=")
        if not equals or field not in MATCHABLE:
            self.fail(f"{value!r} must be FIELD=PATTERN, with FIELD one of {FIELDS}", param, ctx)
        return field, pattern


matching = click.option(
    "--match",
    "patterns",
    type=Match(),
    multiple=True,
    metavar="FIELD=PATTERN",
    help="Only dead letters that match; * and ? as in file names. May be repeated: patterns for the same field are "
    f"alternatives, patterns for different fields must all match. Fields: {FIELDS}.",
)
