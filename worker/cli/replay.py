"""Sending dead letters again, each at most once."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from worker.cli.letters import Letter, place_of
from worker.kafka.sender import deliver

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from worker.cli.access import Access
    from worker.cli.console import Meter, Stop
    from worker.cli.journal import Journal
    from worker.kafka.sender import Sender

BATCH = 100  # letters under way at a time


class Memory(Protocol):
    """What a plan asks of the journal."""

    def knows(self, letter: Letter) -> bool:
        """See ``Journal``."""

    def lacks(self, letter: Letter) -> bool:
        """See ``Journal``."""


@dataclass
class Plan:
    """What a replay would do. Letters are named by their marks, so that a plan is small."""

    chosen: set[str] = field(default_factory=set)
    topics: set[str] = field(default_factory=set)  # where the chosen ones go
    replayed: int = 0  # letters that were replayed before
    lacking: list[str] = field(default_factory=list)  # those among them that the journal lacks
    obstacles: dict[str, str] = field(default_factory=dict)  # places of letters that cannot be replayed, and why


def read_letters(access: Access) -> Iterator[Letter]:
    """All dead letters there are now, those of a partition in order; none if there is no such topic."""
    spans = access.cluster.spans(access.cluster.find(access.settings.dead_letter_topic) or [])
    return map(Letter, access.read({partition: span.start for partition, span in spans.items()}))


def plan(letters: Iterable[Letter], journal: Memory, patterns: Sequence[tuple[str, str]], limit: int | None) -> Plan:
    """Choose the letters that match and were not replayed yet, at most ``limit``, the first ones."""
    result = Plan()
    for letter in letters:
        if journal.lacks(letter):
            result.lacking.append(letter.mark)
        if journal.knows(letter):
            result.replayed += 1
        elif not letter.matches(patterns):
            continue
        elif letter.obstacle:
            result.obstacles[letter.place] = letter.obstacle
        elif limit is None or len(result.chosen) < limit:
            result.chosen.add(letter.mark)
            result.topics.add(letter.request().topic)
    return result


class Replay:
    """Carries out a plan. ``failed`` names the letters whose request was not confirmed, and why."""

    def __init__(self, sender: Sender, journal: Journal) -> None:
        self._sender = sender
        self._journal = journal
        self.confirmed = 0
        self.failed: dict[str, str] = {}

    def run(self, letters: Iterable[Letter], what: Plan, shown: Meter, stop: Stop) -> None:
        """Send the chosen letters, batch by batch; stops between two batches."""
        self._journal.begin(self._sender, what.topics, what.lacking)
        chosen = (letter for letter in letters if letter.mark in what.chosen)
        while not stop and (batch := list(itertools.islice(chosen, BATCH))):
            self._send(batch)
            shown.show(self.confirmed)
        if not self.failed:  # "failed" means unknown: an open run makes the next one look for what was written
            self._journal.finish(self._sender)

    def _send(self, batch: list[Letter]) -> None:
        replayed = {}
        deliveries = deliver(self._sender, [letter.request() for letter in batch])
        for letter, delivery in zip(batch, deliveries, strict=True):
            if delivery.failure:
                self.failed[letter.place] = delivery.failure
            else:
                replayed[letter.mark] = place_of(delivery.partition, delivery.offset)
        self._journal.record(self._sender, replayed)
        self.confirmed += len(replayed)
