"""Invariants of commits, exit codes, memory and other expectations of the suite."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from chaos.features import use_states
from chaos.violation import Violation

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from chaos.evidence import Evidence, Exit, Sample

MAX_MEMORY = 200 * 2**20  # bytes of one worker process
MAX_GROWTH = 40 * 2**20  # bytes, after its first ten seconds
MAX_THREADS = 4  # in addition to those it had
CLIENT_THREADS = 4, 2  # of an additional client: four, and two for each broker
GROUP_CLIENTS = 17  # clients that a process keeps to look at groups, with a state topic
MEMBERSHIP_THREAD = "rdk:bg"  # only the client of the membership check has it, one at a time
YOUNG = 10.0  # seconds in which a process may still grow
SET_UP_THREADS = 6  # of a process with all its clients
LAST = 3  # samples
REPLACED = 20.0  # seconds: a client whose transaction has no reply is given up after 15 s, and its successor is there
LONGEST_HOLD = 90.0  # seconds: the longest request, the longest outage, and a hung transaction

SIGTERM, SIGKILL = -15, -9
DRAINED, REFUSED, UNREACHABLE, CRASH_LOOP, CANCELLED = 0, 2, 4, 5, 6  # exit codes of the contract


def all_committed(evidence: Evidence) -> Iterator[Violation]:
    """Check that the committed offset of every partition is its end."""
    for partition, end in sorted(evidence.ends.items()):
        if evidence.committed.get(partition) != end:
            yield Violation("commit", f"partition {partition}: {evidence.committed.get(partition)} instead of {end}")


def allowed_codes(one: Exit) -> set[int]:
    """Return the exit codes that the contract allows for a replica that ended in this way."""
    if one.duplicate:  # refused, or stopped by SIGTERM while both fenced each other
        return {REFUSED, *({DRAINED, CANCELLED, SIGTERM} if one.sigterms else ()), UNREACHABLE, CRASH_LOOP}
    if one.sigterms == 1 and one.supervising and not one.faults:
        return {DRAINED}
    allowed = {DRAINED, CANCELLED} if one.sigterms else set()
    if not one.supervising:
        allowed |= {SIGTERM} if one.sigterms else set()  # before its signal handler was installed
        allowed |= {UNREACHABLE} if one.faults & {"broker", "network", "store"} else set()
        # A frozen process of the previous replica may still hold the name.
        allowed |= {REFUSED} if one.faults & {"process", "replica"} else set()
    if one.faults & {"process", "replica", "requests"}:
        allowed |= {CRASH_LOOP}
    return allowed


def exits_well(evidence: Evidence) -> Iterator[Violation]:
    """Check that every replica ends with an exit code that the contract allows for its faults and signals."""
    for one in evidence.exits:
        if one.code not in allowed_codes(one):
            how = f"after {one.sigterms} SIGTERM" if one.sigterms else "without being stopped"
            near = f", faults: {', '.join(sorted(one.faults))}" if one.faults else ""
            yield Violation("exit", f"{one.replica} ended with exit code {one.code} {how}{near}")


def expectations_met(evidence: Evidence) -> Iterator[Violation]:
    """Check that holds are short, that no process outlives the run, and that the suite's expectations are met."""
    for process, seconds in evidence.holds:
        if seconds > LONGEST_HOLD:
            yield Violation("expectation", f"{process} held revoked partitions for {seconds:.0f} s")
    for left in evidence.leftovers:
        yield Violation("leftover", left)
    for text in evidence.failed:
        yield Violation("expectation", text)


def memory_flat(evidence: Evidence) -> Iterator[Violation]:
    """Check that no worker process takes much memory, or keeps growing in memory or threads."""
    by_pid = defaultdict(list)
    for sample in evidence.samples:
        by_pid[sample.pid].append(sample)
    for pid, samples in by_pid.items():
        yield from _memory(pid, samples)
        yield from _threads(evidence, pid, samples)


def _grown(samples: Sequence[Sample]) -> list[Sample]:
    """Return the samples of a process that has its clients and is no longer young."""
    begin = samples[0].time
    return [one for one in samples if one.time - begin >= YOUNG and one.threads.total() >= SET_UP_THREADS]


def _memory(pid: int, samples: Sequence[Sample]) -> Iterator[Violation]:
    # The minimum of the last samples, because memory in a single sample belongs to a task.
    grown, least = _grown(samples), min(sample.pss for sample in samples[-LAST:])
    if len(samples) >= LAST and least > MAX_MEMORY:
        yield Violation("memory", f"process {pid} has {least / 2**20:.0f} MB")
    if len(grown) > LAST and least - grown[0].pss > MAX_GROWTH:
        yield Violation("memory", f"process {pid} grew by {(least - grown[0].pss) / 2**20:.0f} MB")


def _threads(evidence: Evidence, pid: int, samples: Sequence[Sample]) -> Iterator[Violation]:
    """Check that only abandoned clients keep threads, as many as reports and outages explain.

    A process with a state topic keeps some more clients, because its tasks may be detached.
    """
    grown = _grown(samples)
    if not grown:
        return
    fixed, each = CLIENT_THREADS
    # A client that is being replaced stays for some seconds, so the least of the last samples counts.
    last = [one.threads for one in grown if one.time >= grown[-1].time - REPLACED]
    before, after = grown[0].threads, min(last, key=Counter.total)
    clients = min(evidence.hung_clients, evidence.outages) + min(after[MEMBERSHIP_THREAD], 1)
    clients += GROUP_CLIENTS if use_states(evidence.options.uses) else 0
    if after.total() - before.total() > MAX_THREADS + (fixed + each * evidence.options.brokers) * clients:
        names = ", ".join(f"{count} {name}" for name, count in sorted((after - before).items()))
        text = f"process {pid} has {after.total()} threads instead of {before.total()}, more by {names}"
        yield Violation("memory", text)
