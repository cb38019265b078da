"""The fault-injection suite behind ``scripts/chaos``."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import signal
import sys
import tempfile
import time
import uuid
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from chaos import cluster as clusters
from chaos import faults, features, procutil, record, report, requests, run_lists, stores
from chaos import plan as plans
from chaos import run as runs
from chaos.options import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.cluster import Cluster
    from chaos.record import Line


class Progress:
    """Lines of progress on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def __call__(self, line: str) -> None:
        click.echo(f"[{time.monotonic() - self._begin:4.0f} s] {line}", err=True)


def _choice(*values: str) -> Any:
    return click.Choice(values)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seed", type=int, default=1, help="Seed of the plan.")
@click.option("--guarantee", type=_choice("at-most-once", "at-least-once", "exactly-once"), default="at-least-once")
@click.option("--ordering", type=_choice("partition", "key", "unordered"), default="partition")
@click.option("--protocol", type=_choice("consumer", "classic"), default="consumer")
@click.option("--brokers", type=click.IntRange(1, 3), default=1)
@click.option("--mix", default="all", help=f"Faults to inject: {', '.join(faults.MIXES)}, or names joined by +.")
@click.option("--load", "traffic", type=click.Choice(sorted(requests.RATES)), default="mixed", help="Requests to send.")
@click.option("--store", type=_choice("", "sqlite", "postgresql"), default="", help="Use an offset store.")
@click.option("--faults", "count", type=int, default=0, help="Number of faults, instead of --minutes.")
@click.option("--minutes", type=float, default=1.0, help="How long to inject faults.")
@click.option("--gap", type=float, default=1.5, help="Average number of seconds between faults.")
@click.option("--session", type=float, default=5.0, help="Session time-out of the group, in seconds.")
@click.option("--attempts", type=int, default=0, help="WORKER_MAX_ATTEMPTS. 0: 25, or 3 in the mix requests.")
@click.option("--heartbeat", type=float, default=0.5, help="Heartbeat interval of the group, in seconds.")
@click.option("--with", "used", default="", help=f"Features, joined by +, or drawn: {', '.join(features.FEATURES)}.")
@click.option("--quick", is_flag=True, help="Run the quick form: all three guarantees, 63 faults.")
@click.option("--long", "long_form", is_flag=True, help="Run the long form: more than 1,000 faults.")
@click.option("--features", is_flag=True, help="Run the features: detaching, cancels and more.")
@click.option("--part", "parts", type=int, multiple=True, help="Run only this run of a form, from 1. May be repeated.")
@click.option("--write", is_flag=True, help="Append the results to the record, and write docs/reliability.md.")
@click.option("--document", is_flag=True, help="Write docs/reliability.md from the record, and run nothing.")
@click.option("--keep", is_flag=True, help="Keep the folder with all logs, even if everything passed.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan, and run nothing.")
@click.option("--list", "only_list", is_flag=True, help="Print the faults, and run nothing.")
def main(*, document: bool, **given: Any) -> None:
    """Inject faults into replicas, brokers and networks, and check every guarantee.

    Exit code 0: every run passed. 1: a run broke an invariant or crashed.
    """
    if given.pop("only_list"):
        for kind in faults.KINDS:
            click.echo(f"{kind.name:28} {kind.area:8} {kind.meaning}")
        return
    if document:
        write_document()
        return
    write, keep, only_plan = given.pop("write"), given.pop("keep"), given.pop("only_plan")
    chosen = _chosen(given)
    stores.fetch([] if only_plan else {one.store for one in chosen})
    rights = procutil.private_machine()
    try:
        planned = [plans.draw(one, rights=rights) for one in chosen]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if only_plan:
        for one in planned:
            click.echo("\n".join([one.options.title, *map(str, one.faults)]))
        return
    sys.exit(Suite(planned, _identity() if write else None, small_disks="disks" in rights, keep=keep).run())


def _chosen(given: dict[str, Any]) -> Sequence[Options]:
    """Return the runs of the named form, or the one that the options describe."""
    forms = {"quick": run_lists.QUICK, "long_form": run_lists.LONG, "features": run_lists.FEATURES}
    named = [form for name, form in forms.items() if given.pop(name)]
    parts = given.pop("parts")
    if not named:
        return [_options(given)]
    if beyond := [part for part in parts if not 0 < part <= len(named[0])]:
        raise click.UsageError(f"--part {beyond[0]}: the form has the runs 1 to {len(named[0])}")
    return [named[0][part - 1] for part in parts] or named[0]


def _options(given: dict[str, Any]) -> Options:
    """Return the options of one run. Raise click.UsageError for features that do not exist."""
    try:
        used = features.parse(given.pop("used"), given["seed"], given["store"])
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    return Options(**given | {"faults": given.pop("count"), "load": given.pop("traffic"), "features": used})


def _identity() -> Line:
    """Return which code runs, for the record."""
    try:
        return record.identity()
    except RuntimeError as error:
        raise click.ClickException(f"--write: {error}") from None


def write_document() -> None:
    """Write docs/reliability.md from the record."""
    report.DOCUMENT.write_text(report.document(record.runs(record.load())), encoding="utf-8")


class Suite:
    """A list of plans to execute one after another. With an ``identity`` of the code, results go into the record."""

    def __init__(self, planned: Sequence[plans.Plan], identity: Line | None, *, small_disks: bool, keep: bool) -> None:
        self._plans, self._identity = planned, identity
        self._small_disks, self._keep = small_disks, keep
        self._echo = Progress()
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._passed = True

    def run(self) -> int:
        """Execute all plans and return the exit code."""
        try:
            asyncio.run(self._stoppable())
        except asyncio.CancelledError:
            self._echo("interrupted")
            self._passed, self._keep = False, True
        if self._passed and not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            self._echo(f"all logs are in {self._folder}")
        return 0 if self._passed else 1

    async def _stoppable(self) -> None:
        task = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, lambda: task and task.cancel())
        for brokers, group in groupby(self._plans, lambda one: one.options.brokers):
            await self._with_brokers(brokers, list(group))

    async def _with_brokers(self, count: int, planned: Sequence[plans.Plan]) -> None:
        tag = uuid.uuid4().hex
        folder = self._folder / f"{count}-{tag[:6]}"
        async with clusters.running(folder, count, tag, small_disks=self._small_disks) as cluster:
            self._echo(f"{count} broker(s) answer, {folder}")
            for one in planned:
                begun = record.of_beginning(one.options)
                self._record(begun)
                line = await self._one(one, cluster, folder / f"seed-{one.options.seed}-{one.options.guarantee}")
                self._passed = self._passed and line["outcome"] == record.PASSED
                click.echo(f"{report.terminal(line)}  ({one.options.title})")
                self._record({**line, "id": begun["id"]})
                if self._identity:
                    write_document()

    def _record(self, line: Line) -> None:
        if self._identity:
            record.append({**line, **self._identity})

    async def _one(self, plan: plans.Plan, cluster: Cluster, folder: Path) -> Line:
        """Execute a plan. Return its line for the record, also if it raises an error."""
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet
        for fault in plan.faults:
            click.echo(f"  {fault}")
        began = time.monotonic()
        try:
            result = await runs.execute(plan, cluster, folder, self._echo)
        except Exception as error:  # noqa: BLE001 - recorded as crashed, and the other runs continue
            with contextlib.suppress(Exception):
                await cluster.wait_answers(seconds=5)
            return record.of_crash(plan.options, _reason(error), time.monotonic() - began)
        for text in (*map(str, result.violations), *result.diagnostics):
            click.echo(f"    {text}")
        return record.of_result(result)


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reason(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
