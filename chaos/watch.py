"""Watching a run: does it go on, how much memory do its processes take, and what do the logs say of a request?"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import psutil

from chaos import groups
from chaos.ledger import Sample

if TYPE_CHECKING:
    from collections.abc import Iterable

    from chaos.fleet import Fleet
    from chaos.ledger import Evidence, Place
    from chaos.traffic import Reader

SAMPLE_SECONDS = 4.0
PATIENCE = 75.0  # seconds without any progress although everything is healed
QUIET = 9.0  # the same where what is missing may be lost: longer than any request takes
_SHOWN = 8


class StalledError(Exception):
    """Nothing goes on any more."""


async def sample(fleet: Fleet, samples: list[Sample]) -> None:
    """Look at the worker processes every few seconds; never returns."""
    while True:
        await asyncio.sleep(SAMPLE_SECONDS)
        for replica in list(fleet.members.values()):
            for process in replica.workers():
                with contextlib.suppress(psutil.Error):
                    pss = process.memory_full_info().pss
                    samples.append(Sample(process.pid, time.monotonic(), pss, _threads(process.pid)))
                await asyncio.sleep(0)


def _threads(pid: int) -> Counter[str]:
    """The client names its threads after what they are for."""
    found: Counter[str] = Counter()
    for file in Path(f"/proc/{pid}/task").glob("*/comm"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            found[file.read_text().strip()] += 1
    return found


class Progress:
    """Whether answers and commits come in, and whether all that has to be there is."""

    def __init__(self, fleet: Fleet, reader: Reader, topic: str) -> None:
        self._fleet, self._reader, self._topic = fleet, reader, topic
        self._bootstrap = fleet.cluster.bootstrap
        self.committed: dict[int, int] = {}
        self.ends: dict[int, int] = {}

    async def look(self) -> None:
        """Ask the brokers where the group stands."""
        with contextlib.suppress(Exception):  # they may be away, or slow
            self.committed = await asyncio.to_thread(groups.committed, self._bootstrap, self._fleet.group, self._topic)
            self.ends = await asyncio.to_thread(groups.ends, self._bootstrap, self._topic)

    async def _owners(self) -> str:
        with contextlib.suppress(Exception):
            return await asyncio.to_thread(groups.owners, self._bootstrap, self._fleet.group)
        return "the group cannot be described"

    async def wait_done(self, sent: Iterable[Place], *, all_answered: bool) -> None:
        """Wait until everything is committed and, if that can be hoped for, answered. Raises StalledError."""
        wanted, state, since = set(sent), None, time.monotonic()
        while True:
            await self.look()
            answered = self._reader.answered
            done = bool(self.ends) and self.committed == self.ends
            if done and not wanted - answered:
                return
            # At most once commits come before the work, and an answer may never come: it has to be quiet for a while.
            if done and not all_answered and time.monotonic() - since > QUIET:
                return
            now = len(answered), sum(self.committed.values())
            if now != state:
                state, since = now, time.monotonic()
            elif time.monotonic() - since > PATIENCE:
                missing = len(wanted - answered)
                raise StalledError(
                    f"no answer and no commit for {PATIENCE:g} s: {missing} unanswered, "
                    f"committed {self.committed} of {self.ends}; {await self._owners()}"
                )
            await asyncio.sleep(0.5)


def last_words(fleet: Fleet, evidence: Evidence, places: Iterable[Place]) -> list[str]:
    """What is known of some requests: what they are, what handlers noted, the last log lines that name them."""
    starts, found = evidence.starts, []
    for place in sorted(places)[:_SHOWN]:
        partition, offset = place
        item = evidence.sent.get(place)
        marks = [
            f"{m.event} pid {m.pid} attempt {m.attempt} at {m.time:.2f}" for m in evidence.marks if m.place == place
        ]
        found.append(
            f"{partition}:{offset} {item.kind if item else '?'}, {len(starts.get(place, ()))} starts: {marks[-6:]}"
        )
        needle = f'"partition": {partition}, "offset": {offset},'
        for replica in fleet.all:
            found += [f"    {replica.log.name} {line[:400]}" for line in list(replica.lines(needle))[-3:]]
        at_large = f"{evidence.topic}[{partition}]"
        for replica in fleet.all[-fleet.options.replicas :]:
            found += [f"    {replica.log.name} {line[:300]}" for line in list(replica.lines(at_large))[-2:]]
    return found
