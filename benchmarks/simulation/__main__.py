"""Simulate large groups of worker processes: python -m benchmarks.simulation [--write]"""

from __future__ import annotations

import json
from pathlib import Path

import click

from benchmarks.simulation import measured, page, pictures, sweeps

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/simulation.md"
FOLDER = ROOT / "docs/simulation"
RESULTS = FOLDER / "results.json"


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--sweep", multiple=True, type=click.Choice(list(sweeps.SWEEPS)), help="Run these, and keep the results.")
@click.option("--write", is_flag=True, help="Write docs/simulation.md and its plots from the kept results.")
def main(*, sweep: tuple[str, ...], write: bool) -> None:
    """Compare the simulation with the measurements. Fail if they differ by more than a fifth."""
    checks = measured.checks()
    for check in checks:
        click.echo(f"{check.name}: {check.measured:.3g}, simulated {check.simulated:.3g}, {check.deviation:+.0%}")
    if any(abs(check.deviation) > measured.TOLERANCE for check in checks):
        raise click.ClickException("the simulation differs from what was measured by more than a fifth")
    kept = json.loads(RESULTS.read_text("utf-8")) if RESULTS.exists() else {"runs": []}
    kept["checks"] = [check._asdict() for check in checks]
    for name in sweep:
        others = [row for row in kept["runs"] if row["sweep"] != name]
        kept["runs"] = others + sweeps.run(name, lambda line: click.echo(line, err=True))
    if sweep:
        FOLDER.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(kept, indent=1) + "\n", "utf-8")
    if write:
        PAGE.write_text(page.fill(PAGE.read_text("utf-8"), page.tables(kept["runs"], kept["checks"])), "utf-8")
        pictures.draw(kept["runs"], FOLDER)


if __name__ == "__main__":
    main()
