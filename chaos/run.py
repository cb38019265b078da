"""One run: a plan is played against real brokers and replicas, healed, drained and judged."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from chaos import groups, oracle, own, stores, told, watch
from chaos import plan as plans
from chaos.acts import Scene
from chaos.conductor import Conductor
from chaos.fleet import Fleet
from chaos.ledger import Evidence, Exit, read_journal
from chaos.traffic import Reader, Submitter

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence
    from pathlib import Path

    from chaos.cluster import Cluster
    from chaos.ledger import Sample
    from chaos.oracle import Violation
    from chaos.plan import Plan

CALM = 10.0  # seconds after a fault until an end by SIGTERM has to be a clean one


class Result(NamedTuple):
    """What a run came to."""

    plan: Plan
    evidence: Evidence
    violations: Sequence[Violation]
    words: Sequence[str]  # what is known of the requests that went wrong
    faults: Counter[str]  # that happened, by kind
    seconds: float


async def play(plan: Plan, cluster: Cluster, folder: Path, say: Callable[[str], None]) -> Result:
    """Play a plan."""
    began = time.monotonic()
    topics = await cluster.make_topics()
    with stores.opened(plan.options.store, folder) as store, Reader(cluster.bootstrap, topics) as reader:
        fleet = Fleet(plan.options, cluster, topics, folder, store.url if store else "")
        scene = Scene(fleet, cluster, topics, asyncio.Lock(), asyncio.Lock(), store)
        conductor = Conductor(scene, say)
        submitter = Submitter(cluster.bootstrap, topics.requests)
        samples: list[Sample] = []
        failed: list[str] = []
        progress = watch.Progress(fleet, reader, topics.requests)
        try:
            await _set_up(plan, scene)
            say(f"{plan.options.title}: {len(plan.faults)} faults, {len(plan.items)} requests")
            async with _beside(fleet.keep(), watch.sample(fleet, samples)):
                await _disturb(plan, conductor, submitter)
                await _heal(scene)
                say("healed; waiting for the rest")
                try:
                    once = plan.options.guarantee == "at-most-once"
                    await progress.wait_done(submitter.sent, all_answered=not once)
                except watch.StalledError as error:
                    failed.append(str(error))
            drained_at = time.monotonic()
            await fleet.drain()
            failed += [text for text in [await reader.read_all()] if text]
            await progress.look()
        finally:
            fleet.close()
        if reader.unreadable:
            failed.append(f"{reader.unreadable} records that are neither answers nor dead letters")
        evidence = Evidence(
            options=plan.options,
            topic=topics.requests,
            sent=submitter.sent,
            again=submitter.again,
            answers=reader.answers,
            letters=reader.letters,
            marks=read_journal(fleet.journal),
            committed=progress.committed,
            ends=progress.ends,
            told_lost=told.lost(fleet),
            excuses=plans.windows((one.fault.kind.name, one.begin, one.end) for one in conductor.played),
            exits=_exits(fleet, conductor, drained_at),
            leftovers=await _leftovers(cluster),
            samples=samples,
            hung=told.hung(fleet),
            holds=told.holds(fleet),
            effects=store.effects() if store else None,
            failed=[*failed, *fleet.failed],
        )
    violations = oracle.judge(evidence)
    places = {place for violation in violations for place in violation.places}
    if failed:
        places |= set(oracle.lost(evidence))
    words = watch.last_words(fleet, evidence, places)
    faults = Counter(one.fault.kind.name for one in conductor.played)
    return Result(plan, evidence, violations, words, faults, time.monotonic() - began)


async def _set_up(plan: Plan, scene: Scene) -> None:
    options, fleet = plan.options, scene.fleet
    session = {"consumer.session.timeout.ms": f"{options.session * 1000:.0f}"}
    await asyncio.to_thread(groups.configure, scene.cluster.bootstrap, fleet.group, session)
    for number in range(options.replicas):
        fleet.join(number)
    await fleet.wait_ready()


@contextlib.asynccontextmanager
async def _beside(*endless: object) -> AsyncIterator[None]:
    """Run these while the context lasts. If one fails, so does the context's end."""
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


async def _disturb(plan: Plan, conductor: Conductor, submitter: Submitter) -> None:
    begin = time.monotonic()
    async with asyncio.TaskGroup() as group:
        group.create_task(submitter.send(plan.items, begin))
        group.create_task(conductor.play(plan.faults, begin))


async def _heal(scene: Scene) -> None:
    """Undo everything, whoever should have done it."""
    cluster, fleet = scene.cluster, scene.fleet
    cluster.heal()
    for node in cluster.nodes:
        node.signal(signal.SIGCONT)
        if not node.running:
            node.launch(cluster.run)
    for replica in fleet.members.values():
        own.send([replica.process.pid, *(worker.pid for worker in replica.workers())], signal.SIGCONT)
    await cluster.wait_answers()
    await cluster.wait_in_sync(scene.topics)


def _exits(fleet: Fleet, conductor: Conductor, drained_at: float) -> list[Exit]:
    """How replicas ended; a clean end is wanted of those that were asked to and had no fault beside them."""
    faults = [(one.begin, one.end + CALM) for one in conductor.played if not one.fault.kind.clean]
    exits = []
    for one in fleet.ended:
        calm = one.begin >= drained_at or not any(begin <= one.end and one.begin <= end for begin, end in faults)
        exits.append(Exit(one.name, one.code, wanted=one.asked and calm))
    return exits


async def _leftovers(cluster: Cluster) -> list[str]:
    """What still runs of the run, its brokers aside."""
    brokers = {node.process.pid for node in cluster.nodes if node.process is not None}
    left: dict[int, str] = {}
    for _ in range(20):
        left = {pid: line for pid, line in own.marked(cluster.run).items() if pid not in brokers}
        if not left:
            break
        await asyncio.sleep(0.1)
    return [f"process {pid} is left over: {line}" for pid, line in left.items()]
