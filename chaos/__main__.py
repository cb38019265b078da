"""The suite behind ``scripts/chaos``."""

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
from chaos import faults, load, matrix, own, report, stores
from chaos import plan as plans
from chaos import run as runs
from chaos.plan import Options

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.cluster import Cluster


class Progress:
    """Lines on stderr, with the seconds since the start."""

    def __init__(self) -> None:
        self._begin = time.monotonic()

    def __call__(self, line: str) -> None:
        click.echo(f"[{time.monotonic() - self._begin:4.0f} s] {line}", err=True)


def _choice(*values: str) -> Any:
    return click.Choice(values)


@click.command(context_settings={"help_option_names": ["-h", "--help"], "show_default": True})
@click.option("--seed", type=int, default=1, help="What the plan is drawn from.")
@click.option("--guarantee", type=_choice("at-most-once", "at-least-once", "exactly-once"), default="at-least-once")
@click.option("--ordering", type=_choice("partition", "key", "unordered"), default="partition")
@click.option("--protocol", type=_choice("consumer", "classic"), default="consumer")
@click.option("--brokers", type=click.IntRange(1, 3), default=1)
@click.option("--mix", default="all", help=f"Which faults: {', '.join(faults.MIXES)}, or names with + between them.")
@click.option("--load", "traffic", type=click.Choice(sorted(load.RATES)), default="mixed", help="Which requests.")
@click.option("--store", type=_choice("", "sqlite", "postgresql"), default="", help="An offset store.")
@click.option("--faults", "count", type=int, default=0, help="So many faults, instead of --minutes.")
@click.option("--minutes", type=float, default=1.0, help="How long faults happen.")
@click.option("--gap", type=float, default=1.5, help="Seconds from one fault to the next, on average.")
@click.option("--session", type=float, default=5.0, help="Session time-out of the group, in seconds.")
@click.option("--quick", is_flag=True, help="The quick form: the three guarantees, 63 faults.")
@click.option("--long", "long_form", is_flag=True, help="The long form: more than 1,000 faults.")
@click.option("--part", type=click.IntRange(1, len(matrix.LONG)), help="One run of the long form.")
@click.option("--write", is_flag=True, help="Keep the results and write docs/reliability.md.")
@click.option("--keep", is_flag=True, help="Keep the folder with all logs, also when everything held.")
@click.option("--plan", "only_plan", is_flag=True, help="Print the plan, and do nothing.")
@click.option("--list", "only_list", is_flag=True, help="Print the faults, and do nothing.")
def main(*, quick: bool, long_form: bool, part: int | None, **given: Any) -> None:
    """Disturb replicas, brokers and networks in every way there is, and prove that no promise was broken."""
    if given.pop("only_list"):
        for kind in faults.KINDS:
            click.echo(f"{kind.name:18} {kind.area:8} {kind.meaning}")
        return
    write, keep, only_plan = given.pop("write"), given.pop("keep"), given.pop("only_plan")
    if quick:
        chosen: Sequence[Options] = matrix.QUICK
    elif long_form:
        chosen = matrix.LONG[part - 1 : part] if part else matrix.LONG
    else:
        chosen = [Options(**given | {"faults": given.pop("count"), "load": given.pop("traffic")})]
    stores.fetch([] if only_plan else {one.store for one in chosen})
    root = own.private_machine()
    try:
        planned = [plans.draw(one, root=root) for one in chosen]
    except ValueError as error:
        raise click.UsageError(str(error)) from None
    if only_plan:
        for one in planned:
            click.echo("\n".join([one.options.title, *map(str, one.faults)]))
        return
    sys.exit(Suite(planned, root=root, write=write, keep=keep).run())


class Suite:
    """Runs plans one after another."""

    def __init__(self, planned: Sequence[plans.Plan], *, root: bool, write: bool, keep: bool) -> None:
        self._plans = planned
        self._root, self._write, self._keep = root, write, keep
        self._say = Progress()
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._held = True

    def run(self) -> int:
        """The exit code."""
        try:
            asyncio.run(self._stoppable())
        except asyncio.CancelledError:
            self._say("interrupted")
            self._held, self._keep = False, True
        if self._held and not self._keep:
            shutil.rmtree(self._folder, ignore_errors=True)
        else:
            self._say(f"all logs are in {self._folder}")
        return 0 if self._held else 1

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
        async with clusters.running(folder, count, tag, small_disks=self._root) as cluster:
            self._say(f"{count} broker(s) answer, {folder}")
            for one in planned:
                await self._one(one, cluster, folder / f"seed-{one.options.seed}-{one.options.guarantee}")

    async def _one(self, plan: plans.Plan, cluster: Cluster, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else goes on yet
        for fault in plan.faults:
            click.echo(f"  {fault}")
        try:
            result = await runs.play(plan, cluster, folder, self._say)
        except Exception as error:  # noqa: BLE001 - the others may go well
            self._held = False
            self._say(f"BROKEN  {plan.options.title}: {_reason(error)}")
            with contextlib.suppress(Exception):
                await cluster.wait_answers(seconds=5)
            return
        line = report.record(result)
        self._held = self._held and not result.violations
        click.echo(f"{report.told(line)}  ({plan.options.title})")
        for text in (*map(str, result.violations), *result.words):
            click.echo(f"    {text}")
        if self._write:
            report.keep([line])
            report.DOCUMENT.write_text(report.document(report.load()), encoding="utf-8")


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reason(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


if __name__ == "__main__":
    main()
