"""The execution of plans on private brokers, one after another or several at a time."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from chaos import cluster as clusters
from chaos import features, procutil, record, report
from chaos import run as runs
from chaos.node import Layout

if TYPE_CHECKING:
    from collections.abc import Sequence

    from chaos.cluster import Cluster
    from chaos.plan import Plan
    from chaos.record import Line

_LONGEST_REST = 1200.0  # seconds of a run in addition to its plan, until it counts as crashed
_FORK: Any = multiprocessing.get_context("fork")


class Progress:
    """Lines of progress on stderr, with the seconds since the start."""

    def __init__(self, name: str) -> None:
        self._begin, self._name = time.monotonic(), name

    def __call__(self, line: str) -> None:
        click.echo(f"[{self._name}{time.monotonic() - self._begin:4.0f} s] {line}", err=True)


class Queue:
    """The plans that have not begun, shared by all jobs. Those that need the same brokers are together."""

    def __init__(self, planned: Sequence[Plan]) -> None:
        # The longest first, so that the jobs end at about the same time.
        self._plans = sorted(planned, key=lambda one: (-one.options.brokers, _alone(one), -one.seconds))
        self._next = _FORK.Value("i", 0)

    def take(self, after: Plan | None = None) -> Plan | None:
        """Return the next plan. None if there is none, or if it cannot use the brokers of the plan ``after``."""
        with self._next.get_lock():
            if self._next.value == len(self._plans):
                return None
            found: Plan = self._plans[self._next.value]
            if after and (_alone(after) or _alone(found) or found.options.brokers != after.options.brokers):
                return None
            self._next.value += 1
            return found

    def stop(self, *_: object) -> None:
        """Let no further run begin. Also for use as a signal handler."""
        self._next.value = len(self._plans)


def _alone(one: Plan) -> bool:
    """Return whether a plan needs brokers that no other can use."""
    return features.need_private_brokers(one.options.uses)


class Ways(NamedTuple):
    """How plans are executed. ``jobs`` run at a time. ``keep`` the folder with all logs."""

    small_disks: bool
    keep: bool = False
    jobs: int = 1


def run(planned: Sequence[Plan], identity: Line | None, ways: Ways) -> int:
    """Execute all plans and return the exit code. With several jobs, start no thread before.

    SIGUSR1 ends it when the runs of that moment are over.
    """
    queue, jobs = Queue(planned), ways.jobs
    signal.signal(signal.SIGUSR1, queue.stop)
    if jobs == 1:
        return Suite(queue, identity, ways).run()
    processes = [_FORK.Process(target=_job, args=(queue, identity, ways, f"job {n + 1}, ")) for n in range(jobs)]
    for process in processes:
        process.start()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda *_: procutil.send([one.pid for one in processes], signal.SIGTERM))
    for process in processes:
        process.join()
    return max(1 if process.exitcode else 0 for process in processes)


def _job(queue: Queue, identity: Line | None, ways: Ways, name: str) -> None:
    """Execute plans in namespaces of this job alone, so that ports and packet filters of two jobs do not collide."""
    os.setpgid(0, 0)  # the parent passes signals on
    procutil.die_with_parent()
    procutil.private_machine()
    sys.exit(Suite(queue, identity, ways, name).run())


def write_documents() -> None:
    """Write the pages about reliability from the record. Other jobs may do so at the same time."""
    with record.locked():
        for page, text in report.documents(record.runs(record.load())).items():
            part = page.with_suffix(".part")
            part.write_text(text, encoding="utf-8")
            part.replace(page)


class Suite:
    """An executor of the plans of a queue. With an ``identity`` of the code, results go into the record."""

    def __init__(self, queue: Queue, identity: Line | None, ways: Ways, name: str = "") -> None:
        self._queue, self._identity = queue, identity
        self._keep, self._small_disks = ways.keep, ways.small_disks
        self._echo = Progress(name)
        self._folder = Path(tempfile.mkdtemp(prefix="chaos-"))
        self._passed = True

    def run(self) -> int:
        """Execute the plans and return the exit code."""
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
        while (first := self._queue.take()) is not None:
            await self._with_brokers(first)

    async def _with_brokers(self, first: Plan) -> None:
        """Execute this plan, and all that follow and can use its brokers."""
        tag, count, uses = uuid.uuid4().hex, first.options.brokers, first.options.uses
        layout = Layout(count, self._small_disks, old="upgrade" in uses, secured="secured" in uses)
        folder = self._folder / f"{count}-{tag[:6]}"
        async with clusters.running(folder, tag, layout) as cluster:
            self._echo(f"{count} broker(s) answer, {folder}")
            one: Plan | None = first
            while one is not None:
                begun = record.of_beginning(one.options)
                self._record(begun)
                line = await self._one(one, cluster, folder / f"seed-{one.options.seed}-{one.options.guarantee}")
                self._passed = self._passed and line["outcome"] == record.PASSED
                click.echo(f"{report.terminal(line)}  ({one.options.title})")
                self._record({**line, "id": begun["id"]})
                if self._identity:
                    write_documents()
                one = self._queue.take(after=one)

    def _record(self, line: Line) -> None:
        if self._identity:
            record.append({**line, **self._identity})

    async def _one(self, plan: Plan, cluster: Cluster, folder: Path) -> Line:
        """Execute a plan. Return its line for the record, also if it raises an error."""
        folder.mkdir(parents=True, exist_ok=True)  # noqa: ASYNC240 - nothing else runs yet
        click.echo("\n".join(f"  {fault}" for fault in plan.faults))
        began = time.monotonic()
        try:
            async with asyncio.timeout(plan.seconds + _LONGEST_REST):
                result = await runs.execute(plan, cluster, folder, self._echo)
        except Exception as error:  # noqa: BLE001 - recorded as crashed, and the other runs continue
            with contextlib.suppress(Exception):
                await cluster.wait_answers(seconds=5)
            return record.of_crash(plan.options, _reason(error), time.monotonic() - began)
        for violation in result.violations:
            click.echo(f"    violated {violation}")
        for text in result.diagnostics:
            click.echo(f"    {text}")
        return record.of_result(result)


def _reason(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_reason(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"
