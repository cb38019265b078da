"""Observation of a run: its progress, the memory of its processes, and diagnostics of requests with violations."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from chaos import groups, log_events
from chaos.evidence import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from chaos.evidence import Evidence, RecordId
    from chaos.follow_ups import FollowUps
    from chaos.replicas import Replicas
    from chaos.traffic import Reader

SAMPLE_SECONDS = 4.0
NO_PROGRESS_SECONDS = 75.0  # seconds without an answer or a commit, although everything is healed
SETTLE_SECONDS = (
    15.0  # the same if answers may be lost: how long a dead process's tasks stay unreported after its session
)
_SHOWN = 8


class NoProgressError(Exception):
    """Requests remain, but no answer or commit arrives."""


async def sample(replicas: Replicas, samples: list[Sample]) -> None:
    """Sample all worker processes every few seconds. Never return."""
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        for replica in list(replicas.members.values()):
            for process in replica.workers():
                with contextlib.suppress(psutil.Error):
                    pss = process.memory_full_info().pss
                    samples.append(Sample(process.pid, time.monotonic(), pss, _threads(process.pid)))
                await asyncio.sleep(0)


def _threads(pid: int) -> Counter[str]:
    """Return the threads by name. librdkafka names each thread after its purpose."""
    found: Counter[str] = Counter()
    for file in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # the thread has ended
            found[file.read_text().strip()] += 1
    return found


class Progress:
    """The progress of a run: whether answers and commits arrive, and whether everything is done."""

    def __init__(self, replicas: Replicas, reader: Reader, topic: str, follow_ups: FollowUps | None = None) -> None:
        self._replicas, self._reader, self._topic = replicas, reader, topic
        self._follow_ups = follow_ups
        self._bootstrap = replicas.cluster.bootstrap
        self.committed: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    async def update(self) -> None:
        """Read the group's offsets from the brokers."""
        with contextlib.suppress(Exception):  # they may be down or slow
            group = self._replicas.group
            self.committed = await asyncio.to_thread(groups.committed, self._bootstrap, group, self._topic)
            ends = await asyncio.to_thread(groups.ends, self._bootstrap, self._topic)
            self.ends = ends_of(self.committed, ends, self._follow_ups.ends) if self._follow_ups else ends

    async def _owners(self) -> str:
        with contextlib.suppress(Exception):
            return await asyncio.to_thread(groups.owners, self._bootstrap, self._replicas.group)
        return "the group cannot be described"

    async def wait_done(self, sent: Iterable[RecordId], *, all_answered: bool) -> None:
        """Wait until all is committed and, if ``all_answered``, answered. Raise NoProgressError if progress stops."""
        wanted, state, since = set(sent), None, time.monotonic()
        while True:
            await self.update()
            answered = self._reader.answered
            done = bool(self.ends) and self.committed == self.ends
            done = done and (self._follow_ups is None or self._follow_ups.quiet)
            if done and not wanted - answered:
                return
            now = len(answered), sum(self.committed.values())
            if now != state:
                state, since = now, time.monotonic()
            silent = time.monotonic() - since
            # At-most-once commits before the work, and an answer may never come: wait until nothing changes.
            if done and not all_answered and silent > self._replicas.options.session + SETTLE_SECONDS:
                return
            if silent > NO_PROGRESS_SECONDS:
                missing = len(wanted - answered)
                raise NoProgressError(
                    f"no answer and no commit for {NO_PROGRESS_SECONDS:g} s: {missing} unanswered, "
                    f"committed {self.committed} of {self.ends}; {await self._owners()}"
                )
            await asyncio.sleep(0.5)


def ends_of(committed: Mapping[int, int], log: Mapping[int, int], requests: Mapping[int, int]) -> dict[int, int]:
    """Return the offset of each partition at which everything is committed.

    Transactions leave markers behind the last request, where its log ends. A commit may be before or behind them.
    """
    found = {}
    for number, end in requests.items():
        at = committed.get(number, 0)
        found[number] = at if end <= at <= log.get(number, end) else end
    return found


def diagnostics(replicas: Replicas, evidence: Evidence, records: Iterable[RecordId]) -> list[str]:
    """Return what is known about some requests: their kind, their journal, and the last log lines that name them."""
    starts, found = evidence.starts, []
    for record in sorted(records)[:_SHOWN]:
        item = evidence.sent.get(record)
        entries = [
            f"{one.event} {one.replica} pid {one.pid} attempt {one.attempt} at {one.time:.2f}"
            for one in evidence.journal
            if one.record == record
        ]
        name, kind = f"{record[0]}:{record[1]}", item.kind if item else "?"
        found.append(f"{name} {kind}, {len(starts.get(record, ()))} starts: {entries[-6:]}")
        latest = replicas.all[-replicas.options.replicas :]
        for replica in replicas.all:
            of_request, of_partition = log_events.about(replica.log, evidence.topic, record)
            shown = [*of_request[-3:], *(of_partition[-2:] if replica in latest else ())]
            found += [f"    {replica.log.name} {line[:400]}" for line in shown]
    return found
