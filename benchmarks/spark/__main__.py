"""``python -m benchmarks.spark``: the pipeline's benchmarks, each with its lower bound in the same run."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.spark import audit, codec, small_run, submit

if TYPE_CHECKING:
    from benchmarks.figures import Figure

WORKLOADS = {"codec": codec.run, "submit": submit.run, "run": small_run.run, "audit": audit.run}


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("names", nargs=-1, type=click.Choice(list(WORKLOADS)))
@click.option("--rows", type=click.IntRange(min=1), help="Rows of each repetition.")
@click.option("--repetitions", type=click.IntRange(min=1), help="How often each is measured.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all values here.")
def main(names: tuple[str, ...], rows: int | None, repetitions: int | None, json_file: Path | None) -> None:
    """Measure, and print the median and the spread of each quantity."""
    given = {name: value for name, value in (("rows", rows), ("repetitions", repetitions)) if value is not None}
    figures: list[Figure] = []
    for name in names or WORKLOADS:
        for figure in WORKLOADS[name](**given):
            figures.append(figure)
            least, greatest = figure.spread
            shown = f"{figure.median:12,.2f} {figure.unit:7} ({least:,.2f} to {greatest:,.2f})"
            click.echo(f"{figure.workload:12} {figure.quantity:36} {figure.program:9} {shown}")
    if json_file:
        json_file.write_text(json.dumps([asdict(figure) for figure in figures], indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
