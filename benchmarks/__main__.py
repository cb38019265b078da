"""The benchmarks behind ``scripts/bench``."""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

import click
from rich.console import Console

from benchmarks import check, machine, plots, results
from benchmarks.bench import FULL, HEADLINE, QUICK, Bench, Scale
from benchmarks.broker import ROOT, Broker
from benchmarks.other_engine import OtherEngine
from benchmarks.pages import appendix, summary
from benchmarks.report import Report, Section, as_json, comparison_sheet, figures_sheet, goals_sheet, terminal
from benchmarks.workloads import (
    blocked,
    chains,
    client,
    crashes,
    engines,
    guarantees,
    latency,
    limits,
    memory,
    payload,
    peers,
    pipeline,
    scaling,
    startup,
    sweep,
    tasks,
    throughput,
    uneven,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from benchmarks.figures import Figure

WORKLOADS: dict[str, Callable[[Bench], list[Figure]]] = {
    **engines.WORKLOADS,
    throughput.NAME: throughput.run,
    peers.NAME: peers.run,
    **tasks.workloads(),
    **uneven.WORKLOADS,
    blocked.NAME: blocked.run,
    **payload.workloads(),
    latency.NAME: latency.run,
    memory.NAME: memory.run,
    startup.NAME: startup.run,
    scaling.NAME: scaling.run,
    **crashes.WORKLOADS,
    limits.NAME: limits.run,
    guarantees.NAME: guarantees.run,
    client.NAME: client.run,
    chains.NAME: chains.run,
    sweep.NAME: sweep.run,
    **pipeline.workloads(),
}
IN_QUICK = (throughput.NAME, peers.NAME, "tasks-1ms", "tasks-10ms", latency.NAME, memory.NAME, startup.NAME)
DOCUMENT = ROOT / "docs/benchmarks.md"
RESULTS = ROOT / "docs/benchmarks/results.json"


class Progress:
    """Lines of progress on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def __call__(self, line: str) -> None:
        print(f"[{time.monotonic() - self._begin:4.0f} s] {line}", file=sys.stderr, flush=True)


class Run(NamedTuple):
    """The selection of the options. ``beside`` is a revision, or empty."""

    scale: Scale
    names: tuple[str, ...]
    command: str
    beside: str = ""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--quick", is_flag=True, help="Run a few workloads in a short form, without downloading peers.")
@click.option("--headline", is_flag=True, help="Run only what the headline ratios need, in less than half an hour.")
@click.option("--only", multiple=True, type=click.Choice(list(WORKLOADS)), help="Run this workload. May be repeated.")
@click.option("--beside", default="", metavar="COMMIT", help="Measure the worker of another commit beside this one.")
@click.option("--write", is_flag=True, help="Keep the results, and write docs/benchmarks.md from all kept ones.")
@click.option(
    "--check",
    "checked",
    is_flag=True,
    help="Fail if a headline rate is a fifth lower than the kept one, or a time a quarter longer.",
)
@click.option("--document", "only_document", is_flag=True, help="Write docs/benchmarks.md, and run nothing.")
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path, dir_okay=False), help="Write all values to this file."
)
def main(
    *,
    quick: bool,
    headline: bool,
    only: tuple[str, ...],
    beside: str,
    write: bool,
    checked: bool,
    only_document: bool,
    json_file: Path | None,
) -> None:
    """Compare the worker with a bare loop and with its peers, on a private broker.

    Exit code 0: all workloads of the worker were measured. 1: one failed, or --check found a regression.
    """
    if only_document:
        write_document(results.load(RESULTS))
        return
    if quick and (write or checked or headline):
        raise click.UsageError("--quick is too short to be kept or compared: leave it out")
    if checked and (only or write):
        raise click.UsageError("--check chooses its workloads and keeps nothing: use it without --only and --write")
    kept = results.load(RESULTS).figures
    if checked and check.nothing_kept(check.compare(kept, [])):
        raise click.ClickException("there are no results to compare with: measure with --headline --write first")
    signal.signal(signal.SIGTERM, _stop)
    report, failed = _measured(_run(only, beside, quick=quick, headline=headline or checked), write=write)
    _show(report)
    if json_file:
        json_file.write_text(json.dumps(as_json(report), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    if checked:
        changes = check.compare(kept, report.figures)
        click.echo("\n".join(map(str, changes)))
        failed = failed or any(change.failed for change in changes)
    sys.exit(1 if failed else 0)


def _run(only: tuple[str, ...], beside: str, *, quick: bool, headline: bool) -> Run:
    scale = QUICK if quick else HEADLINE if headline else FULL
    names = only or (IN_QUICK if quick else check.WORKLOADS if headline else tuple(WORKLOADS))
    options = [
        *(["--quick"] if quick else ["--headline"] if headline else []),
        *(f"--only {name}" for name in only),
        *([f"--beside {beside}"] if beside else []),
    ]
    return Run(scale, names, " ".join(["scripts/bench", *options]), beside)


def _measured(run: Run, *, write: bool) -> tuple[Report, bool]:
    try:
        other = OtherEngine.extract(run.beside) if run.beside else None
    except ValueError as error:
        raise click.UsageError(f"--beside {run.beside}: {error}") from None
    with contextlib.ExitStack() as stack:
        if other:
            stack.callback(other.remove)
        return measure(run.scale, run.names, run.command, publish if write else _forget, other)


def _show(report: Report) -> None:
    console = Console(width=None if sys.stdout.isatty() else 200)
    for sheet in (figures_sheet(report.figures), comparison_sheet(report.figures), goals_sheet(report.figures)):
        console.print(terminal(sheet))
    for failure in report.failures:
        console.print(f"Not measured: {failure}", markup=False)


def measure(
    scale: Scale,
    names: Sequence[str],
    command: str,
    keep: Callable[[Report], None],
    other_engine: OtherEngine | None = None,
) -> tuple[Report, bool]:
    """Run the workloads. Return the report, and whether the worker failed.

    A failing workload is reported, and the others continue. ``keep`` gets each workload when it is done, so that an
    interrupted run keeps its results so far.
    """
    echo = Progress()
    sections: dict[str, Section] = {}
    with Broker() as broker, Bench(broker, scale, echo, other_engine) as bench:
        echo(f"Kafka {broker.version} answers on {broker.address}")
        for name in names:
            sections[name] = _section(bench, name, command)
            keep(Report({name: sections[name]}, machine.common(bench)))
        return Report(sections, machine.common(bench)), any(failure.fatal for failure in bench.failures)


def _forget(_report: Report) -> None:
    """Discard the report."""


def _section(bench: Bench, name: str, command: str) -> Section:
    begin, others, before = time.monotonic(), bench.other_cpu_seconds(), len(bench.failures)
    figures: list[Figure] = []
    try:
        figures = WORKLOADS[name](bench)
    except Exception as error:  # noqa: BLE001 - reported, and the other workloads may succeed
        bench.report_failure(name, "", error)
    took = time.monotonic() - begin
    # The CPU time of a JVM that Spark leaves behind is not accounted to the suite.
    cores = None if name in pipeline.workloads() else (bench.other_cpu_seconds() - others) / took
    return Section(figures, [str(one) for one in bench.failures[before:]], machine.section(command, took, cores))


def publish(report: Report) -> None:
    """Keep the measurements, and write the document and its pictures."""
    everything = results.merged(results.load(RESULTS), report, list(WORKLOADS))
    results.save(everything, RESULTS)
    write_document(everything)


def write_document(report: Report) -> None:
    """Write both pages and their pictures."""
    pictures = plots.draw(report.figures, RESULTS.parent)
    paths = {f"{RESULTS.parent.name}/{name}": title for name, title in pictures.items()}
    DOCUMENT.write_text(summary(report, paths), encoding="utf-8")
    DOCUMENT.with_stem(f"{DOCUMENT.stem}-figures").write_text(appendix(report, paths), encoding="utf-8")


def _stop(*_: object) -> NoReturn:
    """Leave every context on SIGTERM, which stops every process."""
    sys.exit(143)


if __name__ == "__main__":
    main()
