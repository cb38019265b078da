"""One run: a plan on real brokers and replicas. Everything is healed and drained before the result is judged."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from chaos import checker, groups, history, oracle, procutil, states, stores, watch
from chaos.answer_invariants import unanswered
from chaos.client_requests import KIND, Clients
from chaos.follow_ups import FollowUps
from chaos.gathering import Run, Watched, gather
from chaos.pipeline_jobs import PipelineJobs
from chaos.process_faults import RunContext
from chaos.replicas import Replicas
from chaos.scheduler import Scheduler
from chaos.traffic import Reader, Submitter
from chaos.violation import Violation

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from chaos.cluster import Cluster
    from chaos.evidence import Evidence, RecordId
    from chaos.plan import Plan
    from chaos.topics import Topics


class Result(NamedTuple):
    """The result of a run. ``faults`` counts the injected faults by kind.

    ``cpu_pressure`` is the share of the ``seconds`` in which some process of the machine waited for a CPU.
    """

    plan: Plan
    evidence: Evidence
    violations: Sequence[Violation]
    diagnostics: Sequence[str]
    faults: Counter[str]
    skipped: int
    seconds: float
    cpu_pressure: float


async def execute(plan: Plan, cluster: Cluster, folder: Path, echo: Callable[[str], None]) -> Result:
    """Execute a plan and judge its evidence."""
    began, waited = time.monotonic(), procutil.seconds_without_cpu()
    topics = await cluster.make_topics()
    with contextlib.ExitStack() as stack:
        run = _parts(stack, plan, _Place(cluster, topics, folder), echo)
        try:
            await _set_up(run)
            echo(f"{plan.options.title}: {len(plan.faults)} faults, {len(plan.items)} requests")
            drained_at = await _under_faults(run)
            run.watched.failed.extend(text for text in [await run.reader.read_all()] if text)
            await run.progress.update()
            if run.context.jobs:
                await run.context.jobs.judge()
        finally:
            run.context.replicas.close()
        evidence = await gather(run, drained_at)
    violations = [*oracle.judge(evidence), *_second_opinion(evidence, folder)]
    if not violations:
        await cluster.delete_topics(topics)  # the disks are small
    details = watch.diagnostics(run.context.replicas, evidence, _suspicious(evidence, violations, run.watched))
    faults = Counter(one.fault.kind.name for one in run.scheduler.injected)
    seconds = time.monotonic() - began
    pressure = (procutil.seconds_without_cpu() - waited) / seconds
    return Result(plan, evidence, violations, details, faults, len(run.scheduler.skipped), seconds, pressure)


class _Place(NamedTuple):
    """The place of a run."""

    cluster: Cluster
    topics: Topics
    path: Path


def _parts(stack: contextlib.ExitStack, plan: Plan, place: _Place, echo: Callable[[str], None]) -> Run:
    cluster, topics, folder = place
    store = stack.enter_context(stores.opened(plan.options.store, folder))
    reader = stack.enter_context(Reader(cluster.bootstrap, topics))
    others = plan.options.uses & {"follow-ups", "pipeline"}  # who send requests beside the suite
    follow_ups = stack.enter_context(FollowUps(cluster.bootstrap, topics.requests)) if others else None
    submitter = Submitter(cluster.bootstrap, topics.requests)
    replicas = Replicas(plan.options, cluster, topics, folder, store.url if store else "")
    jobs = None
    if "pipeline" in plan.options.uses:
        jobs = PipelineJobs(replicas.client_environment, cluster.run, folder)
        stack.callback(jobs.close)
    context = RunContext(replicas, cluster, topics, asyncio.Lock(), asyncio.Lock(), store, jobs)
    clients = None
    if "client" in plan.options.uses:
        clients = Clients(replicas.client_environment, submitter)
        stack.callback(clients.close)
    return Run(
        plan,
        context,
        Scheduler(context, echo),
        submitter,
        states.Canceller(cluster.bootstrap, topics.requests, topics.states),
        reader,
        follow_ups,
        clients,
        watch.Progress(replicas, reader, topics.requests, follow_ups),
        Watched([], []),
        echo,
    )


def _suspicious(evidence: Evidence, violations: list[Violation], watched: Watched) -> set[RecordId]:
    """Return the requests to show in detail: those of violations, and those without an answer after a failure."""
    records = {record for violation in violations for record in violation.records}
    return records | set(unanswered(evidence)) if watched.failed else records


def _second_opinion(evidence: Evidence, folder: Path) -> list[Violation]:
    """Return the findings of the independent checker in the same history, which stays in the folder."""
    file = folder / "history.jsonl"
    history.write(evidence, file)
    return [Violation("checker", text) for text in checker.check(checker.read(file))]


async def _set_up(run: Run) -> None:
    options, replicas = run.plan.options, run.context.replicas
    settings = {
        "consumer.session.timeout.ms": f"{options.session * 1000:.0f}",
        "consumer.heartbeat.interval.ms": f"{options.heartbeat * 1000:.0f}",
    }
    await asyncio.to_thread(groups.configure, run.context.cluster.bootstrap, replicas.group, settings)
    if replicas.users:
        await asyncio.to_thread(replicas.users.add)
    for number in range(options.replicas):
        replicas.join(number)
    await replicas.wait_ready()
    if run.clients:
        await asyncio.to_thread(run.clients.open)


async def _under_faults(run: Run) -> float:
    """Send the requests under faults, heal, wait for the rest, and drain. Return when the drain began."""
    replicas = run.context.replicas
    async with _beside(replicas.keep(), watch.sample(replicas, run.watched.samples)):
        async with asyncio.TaskGroup() as group:
            if jobs := run.context.jobs:
                group.create_task(jobs.work())
            await _send_under_faults(run)
            await _heal(run.context)
            run.echo("healed; waiting for the remaining answers")
            if jobs:
                jobs.healed = True
        try:
            everything = run.plan.options.guarantee != "at-most-once"
            await run.progress.wait_done(run.submitter.sent, all_answered=everything)
        except watch.NoProgressError as error:
            run.watched.failed.append(str(error))
    drained_at = time.monotonic()
    await replicas.drain()
    return drained_at


async def _send_under_faults(run: Run) -> None:
    items, begin = run.plan.items, time.monotonic()
    async with asyncio.TaskGroup() as group:
        plain = [item for item in items if not run.clients or item.kind != KIND]
        group.create_task(run.submitter.send(plain, begin))
        if run.clients:
            group.create_task(run.clients.send([item for item in items if item.kind == KIND], begin))
        group.create_task(run.canceller.send(items, run.submitter.stored, begin))
        group.create_task(run.scheduler.run(run.plan.faults, begin))


@contextlib.asynccontextmanager
async def _beside(*endless: object) -> AsyncIterator[None]:
    """Run these tasks during the context. If one fails, the context raises its error at the end."""
    tasks = [asyncio.ensure_future(one) for one in endless]  # type: ignore[call-overload]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        ends = await asyncio.gather(*tasks, return_exceptions=True)
    for end in ends:
        if isinstance(end, Exception):
            raise end


async def _heal(context: RunContext) -> None:
    """Undo all faults, including those that should have ended already."""
    cluster, replicas = context.cluster, context.replicas
    cluster.heal()
    replicas.clocks.heal()
    for node in cluster.nodes:
        node.signal(signal.SIGCONT)
        if not node.running:
            node.launch(cluster.run)
    for replica in replicas.members.values():
        procutil.send([replica.process.pid, *(worker.pid for worker in replica.workers())], signal.SIGCONT)
    await cluster.wait_answers()
    await cluster.wait_in_sync(context.topics)
