"""The suite behind ``scripts/bench``."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click
from rich.console import Console

from benchmarks import machine, plots, results
from benchmarks.bench import FULL, QUICK, Bench, Scale
from benchmarks.broker import ROOT, Broker
from benchmarks.report import Piece, Report, as_json, document, figures_sheet, goals_sheet, matrix, terminal
from benchmarks.workloads import (
    beside,
    guarantees,
    latency,
    memory,
    payload,
    pipeline,
    startup,
    tasks,
    throughput,
    uneven,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.figures import Figure

WORKLOADS: dict[str, Callable[[Bench], list[Figure]]] = {
    throughput.NAME: throughput.run,
    beside.NAME: beside.run,
    **tasks.workloads(),
    **uneven.WORKLOADS,
    **payload.workloads(),
    latency.NAME: latency.run,
    memory.NAME: memory.run,
    startup.NAME: startup.run,
    guarantees.NAME: guarantees.run,
    **pipeline.workloads(),
}
IN_QUICK = (throughput.NAME, beside.NAME, "tasks-10ms", latency.NAME, memory.NAME, startup.NAME)
DOCUMENT = ROOT / "docs/benchmarks.md"
KEPT = ROOT / "docs/benchmarks/results.json"


class Progress:
    """Lines on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._begin:4.0f} s] {line}", file=sys.stderr, flush=True)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Some workloads, and little of each: under two minutes. Fetches no peers.")
@click.option("--only", multiple=True, type=click.Choice(list(WORKLOADS)), help="This workload; may be repeated.")
@click.option("--write", is_flag=True, help="Keep the results, and write docs/benchmarks.md from all that are kept.")
@click.option("--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all values here.")
def main(*, quick: bool, only: tuple[str, ...], write: bool, json_file: Path | None) -> None:
    """Measure the worker beside a bare loop and its peers, on a broker of its own."""
    if quick and write:
        raise click.UsageError("the quick form is a look, not a measurement: nothing of it is kept")
    signal.signal(signal.SIGTERM, _stop)
    names = only or (IN_QUICK if quick else tuple(WORKLOADS))
    keep = publish if write else _forget
    report, failed = measure(QUICK if quick else FULL, names, _command(quick=quick, only=only), keep)
    console = Console(width=None if sys.stdout.isatty() else 200)
    for sheet in (figures_sheet(report.figures), matrix(report.figures), goals_sheet(report.figures)):
        console.print(terminal(sheet))
    for trouble in report.troubles:
        console.print(f"Not measured: {trouble}", markup=False)
    if json_file:
        json_file.write_text(json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    sys.exit(1 if failed else 0)


def measure(scale: Scale, names: Sequence[str], command: str, keep: Callable[[Report], None]) -> tuple[Report, bool]:
    """Run the workloads. One that fails is told of, and the others go on. Also: whether ours failed anywhere.

    ``keep`` is given each workload when it is done, so that a run that is stopped leaves what it has.
    """
    say = Progress()
    pieces: dict[str, Piece] = {}
    with Broker() as broker, Bench(broker, scale, say) as bench:
        say(f"Kafka {broker.version} answers on {broker.address}")
        for name in names:
            pieces[name] = _piece(bench, name, command)
            keep(Report({name: pieces[name]}, machine.common(bench)))
        return Report(pieces, machine.common(bench)), any(trouble.failed for trouble in bench.troubles)


def _forget(_report: Report) -> None:
    """Nothing is kept."""


def _piece(bench: Bench, name: str, command: str) -> Piece:
    begin, others, before = time.monotonic(), bench.others(), len(bench.troubles)
    figures: list[Figure] = []
    try:
        figures = WORKLOADS[name](bench)
    except Exception as error:  # noqa: BLE001 - whatever it is, the others may work
        bench.trouble(name, "", error)
    took = time.monotonic() - begin
    cores = (bench.others() - others) / took
    return Piece(figures, [str(one) for one in bench.troubles[before:]], machine.piece(command, took, cores))


def publish(report: Report) -> None:
    """Put what was measured in place of what was kept, and write the document and its pictures from all."""
    everything = results.merged(results.load(KEPT), report, list(WORKLOADS))
    results.save(everything, KEPT)
    pictures = plots.draw(everything.figures, KEPT.parent)
    paths = {f"{KEPT.parent.name}/{name}": title for name, title in pictures.items()}
    DOCUMENT.write_text(document(everything, paths), encoding="utf-8")


def _command(*, quick: bool, only: tuple[str, ...]) -> str:
    return " ".join(["scripts/bench", *(["--quick"] if quick else []), *(f"--only {name}" for name in only)])


def _stop(*_: object) -> NoReturn:
    """SIGTERM leaves every context, and so stops every process."""
    sys.exit(143)


if __name__ == "__main__":
    main()
