"""Gathering the evidence of a run."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, NamedTuple

from chaos import copies, fault_windows, log_events, procutil, states
from chaos.evidence import Evidence, Exit, read_journal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from chaos.client_requests import Clients
    from chaos.cluster import Cluster
    from chaos.evidence import JournalEntry, Sample
    from chaos.faults import Kind
    from chaos.follow_ups import FollowUps
    from chaos.plan import Plan
    from chaos.process_faults import RunContext
    from chaos.replicas import Ended
    from chaos.scheduler import FaultRecord, Scheduler
    from chaos.traffic import Reader, Submitter
    from chaos.watch import Progress

CLEAN_AFTER = 10.0  # seconds after a fault from which on SIGTERM must lead to a clean end
LEFTOVER_SECONDS = 2.0


class Watched(NamedTuple):
    """The data that accumulate during a run."""

    samples: list[Sample]
    failed: list[str]


class Run(NamedTuple):
    """The parts of a run."""

    plan: Plan
    context: RunContext
    scheduler: Scheduler
    submitter: Submitter
    canceller: states.Canceller
    reader: Reader
    follow_ups: FollowUps | None
    clients: Clients | None
    progress: Progress
    watched: Watched
    echo: Callable[[str], None]


async def gather(run: Run, drained_at: float) -> Evidence:
    """Return the evidence of a run whose drain began at ``drained_at``."""
    replicas, cluster, topics, *_, store, jobs = run.context
    follow_ups, injected = run.follow_ups, run.scheduler.injected
    if run.reader.unreadable:
        run.watched.failed.append(f"{run.reader.unreadable} records that are neither answers nor dead letters")
    journal = read_journal(replicas.journal)
    sent = {**run.submitter.sent, **(follow_ups.items if follow_ups else {})}
    topic = await asyncio.to_thread(copies.stored, cluster.bootstrap, topics.requests)
    twice = copies.found(topic, sent, run.submitter.resent)
    return Evidence(
        options=run.plan.options,
        topic=topics.requests,
        sent={**sent, **twice},
        sent_at={**run.submitter.sent_at, **(follow_ups.sent_at if follow_ups else {})},
        copies=frozenset(twice),
        follow_ups=follow_ups.parents if follow_ups else {},
        resent=run.submitter.resent,
        answers=run.reader.answers,
        dead_letters=run.reader.dead_letters,
        journal=journal,
        committed=run.progress.committed,
        ends=run.progress.ends,
        reported_lost=log_events.lost(replicas.logs),
        fault_windows=fault_windows.unclean((one.fault.kind.name, one.replica, one.begin, one.end) for one in injected),
        exits=[_exit(one, injected, _ending(run.plan, journal), drained_at) for one in replicas.ended],
        leftovers=await _leftovers(cluster),
        samples=run.watched.samples,
        hung_clients=log_events.hung_clients(replicas.logs),
        outages=sum(_is_outage(one.fault.kind) for one in injected),
        holds=log_events.holds(replicas.logs, time.time()),
        logged=log_events.features_used(replicas.logs),
        effects=store.effects() if store else None,
        failed=[*run.watched.failed, *replicas.failed, *(jobs.failed if jobs else ())],
        futures=await asyncio.to_thread(run.clients.resolved, run.reader.answered) if run.clients else {},
        found_again=await asyncio.to_thread(run.clients.found_again, run.reader.answered) if run.clients else {},
        rows=jobs.rows if jobs else {},
        calls=jobs.calls if jobs else (),
        collected=jobs.collected if jobs else (),
        audit=jobs.audit if jobs else None,
        cancelled=run.canceller.confirmed,
        states=await asyncio.to_thread(states.read, cluster.bootstrap, topics.states),
    )


def _is_outage(kind: Kind) -> bool:
    """Return whether a fault can leave a client in a call: no broker, or all connections to it broken."""
    return (kind.area == "broker" and not kind.clean) or kind.name in ("cut", "cut-in", "cut-out", "reset")


def _ending(plan: Plan, journal: Sequence[JournalEntry]) -> Sequence[JournalEntry]:
    """Return the entries of requests that ended their worker process. The end of a child process does not count."""
    return [] if "isolation" in plan.options.uses else journal


def _exit(one: Ended, injected: Sequence[FaultRecord], journal: Sequence[JournalEntry], drained_at: float) -> Exit:
    """Return how a replica ended, with the areas of the unclean faults that hit it: none after the drain began."""
    areas = {
        record.fault.kind.area
        for record in injected
        if not record.fault.kind.clean
        and record.replica in ("", one.name)
        and one.begin < drained_at
        and record.begin <= one.end
        and one.begin <= record.end + CLEAN_AFTER
    }
    crashed = any(e.event == "crash" and e.replica == one.name and one.begin <= e.time <= one.end for e in journal)
    faults = frozenset({*areas, *({"requests"} if crashed else ())})
    return Exit(one.name, one.code, one.sigterms, one.supervising, one.duplicate, faults)


async def _leftovers(cluster: Cluster) -> list[str]:
    """Return the processes of the run that are still alive, except its brokers."""
    brokers = {node.process.pid for node in cluster.nodes if node.process is not None}
    deadline = time.monotonic() + LEFTOVER_SECONDS
    while True:
        left = {pid: line for pid, line in procutil.marked(cluster.run).items() if pid not in brokers}
        if not left or time.monotonic() > deadline:
            return [f"process {pid} is left over: {line}" for pid, line in left.items()]
        await asyncio.sleep(0.1)
