"""Replays dead letters, each at most once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from worker.cli.dead_letters import DeadLetter, matches, place_of
from worker.kafka.sender import UNPLACED, deliver

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from worker.cli.console import Meter, Stop
    from worker.cli.journal import Journal
    from worker.kafka.sender import Sender

BATCH = 100  # dead letters in flight at a time


class ReplayMemory(Protocol):
    """The part of the journal that a plan needs."""

    def was_replayed(self, dead_letter: DeadLetter) -> bool:
        """See ``Journal``."""

    def unrecorded(self, dead_letter: DeadLetter) -> bool:
        """See ``Journal``."""


@dataclass
class Plan:
    """The effect of a replay. It names dead letters by their marks, so a plan is small."""

    chosen: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)  # the topics of the chosen requests
    replayed: int = 0  # dead letters that were replayed before
    unrecorded: list[str] = field(default_factory=list)  # those of them that are missing in the journal
    obstacles: dict[str, str] = field(default_factory=dict)  # dead letters that cannot be replayed, and why


def plan(
    dead_letters: Iterable[DeadLetter], journal: ReplayMemory, patterns: Sequence[tuple[str, str]], limit: int | None
) -> Plan:
    """Choose the first ``limit`` dead letters that match and were not replayed yet."""
    result = Plan()
    for dead_letter in dead_letters:
        if journal.unrecorded(dead_letter):
            result.unrecorded.append(dead_letter.mark)
        if journal.was_replayed(dead_letter):
            result.replayed += 1
        elif not matches(dead_letter.fields(replayed=False), patterns):
            continue
        elif dead_letter.obstacle:
            result.obstacles[dead_letter.place] = dead_letter.obstacle
        elif limit is None or len(result.chosen) < limit:
            result.chosen.add(dead_letter.mark)
            result.topics.add(dead_letter.request().topic)
    return result


class Replay:
    """Carries out a plan. ``failed`` has the dead letters whose request was not confirmed, with the reason."""

    def __init__(self, sender: Sender, journal: Journal) -> None:
        self._sender = sender
        self._journal = journal
        self.confirmed = 0
        self.failed: dict[str, str] = {}

    def run(self, dead_letters: Iterable[DeadLetter], what: Plan, meter: Meter, stop: Stop) -> None:
        """Send the chosen requests batch by batch. A stop takes effect between two batches."""
        self._journal.begin(self._sender, what.topics, what.unrecorded)
        chosen = (dead_letter for dead_letter in dead_letters if dead_letter.mark in what.chosen)
        while not stop and (batch := list(itertools.islice(chosen, BATCH))):
            self._send(batch)
            meter.show(self.confirmed)
        if not self.failed:  # "failed" means unknown: an open run makes the next one look for what was written
            self._journal.finish(self._sender)

    def _send(self, batch: list[DeadLetter]) -> None:
        replayed = {}
        deliveries = deliver(self._sender, [dead_letter.request() for dead_letter in batch])
        for dead_letter, delivery in zip(batch, deliveries, strict=True):
            if delivery.failure is not None or delivery.offset is None:
                self.failed[dead_letter.place] = delivery.failure or UNPLACED
            else:
                replayed[dead_letter.mark] = place_of(delivery.partition, delivery.offset)
        self._journal.record(self._sender, replayed)
        self.confirmed += len(replayed)
