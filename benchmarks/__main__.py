"""The suite behind ``scripts/bench``."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from rich.console import Console

from benchmarks.bench import FULL, QUICK, Bench, Scale
from benchmarks.broker import ROOT, Broker
from benchmarks.report import Report, Trouble, as_json, document, facts, figures_sheet, goals_sheet, terminal
from benchmarks.workloads import efficiency, exactly_once, latency, memory, startup, throughput

if TYPE_CHECKING:
    from benchmarks.figures import Figure

WORKLOADS = {module.NAME: module.run for module in (throughput, efficiency, latency, memory, startup, exactly_once)}
DOCUMENT = ROOT / "docs/benchmarks.md"


class Progress:
    """Lines on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._begin

    def __call__(self, line: str) -> None:
        print(f"[{self.seconds:4.0f} s] {line}", file=sys.stderr, flush=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Fewer and shorter repetitions: under two minutes.")
@click.option("--only", multiple=True, type=click.Choice(list(WORKLOADS)), help="This workload; may be repeated.")
@click.option("--write", is_flag=True, help="Write the tables to docs/benchmarks.md.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all values here.")
def main(*, quick: bool, only: tuple[str, ...], write: bool, json_file: Path | None) -> None:
    """Measure the worker beside a bare loop and the simple design, on a broker of its own."""
    signal.signal(signal.SIGTERM, _stop)
    report = measure(QUICK if quick else FULL, only or tuple(WORKLOADS), _command(quick=quick, only=only))
    console = Console(width=None if sys.stdout.isatty() else 200)
    for sheet in (figures_sheet(report.figures), goals_sheet(report.figures)):
        console.print(terminal(sheet))
    for trouble in report.troubles:
        console.print(f"Not measured: {trouble}", markup=False)
    if write:
        DOCUMENT.write_text(document(report), encoding="utf-8")
    if json_file:
        json_file.write_text(json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(1 if any(trouble.failed for trouble in report.troubles) else 0)


def measure(scale: Scale, names: tuple[str, ...], command: str) -> Report:
    """Run the workloads. One that fails is told of, and the others go on."""
    say, load = Progress(), os.getloadavg()[0]
    figures: list[Figure] = []
    troubles: list[Trouble] = []
    with Broker() as broker:
        say(f"Kafka {broker.version} answers on {broker.address}")
        bench = Bench(broker, scale, say)
        for name in names:
            try:
                figures += WORKLOADS[name](bench)
            except Exception as error:  # noqa: BLE001 - whatever it is, the others may work
                troubles.append(Trouble(name, error))
                say(str(troubles[-1]))
        return Report(figures, troubles, facts(broker.version, command, say.seconds, load))


def _command(*, quick: bool, only: tuple[str, ...]) -> str:
    return " ".join(["scripts/bench", *(["--quick"] if quick else []), *(f"--only {name}" for name in only)])


def _stop(*_: object) -> NoReturn:
    """SIGTERM leaves every context, and so stops every process."""
    sys.exit(143)


if __name__ == "__main__":
    main()
