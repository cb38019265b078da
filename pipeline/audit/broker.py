"""How much of the topics is decided, and how much of that is collected."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.topics import Topics

if TYPE_CHECKING:
    from pipeline.bronze import Bronze
    from pipeline.settings import AuditSettings

_LOOK_EVERY = 1.0  # seconds between two looks while waiting


@dataclass(frozen=True)
class Backlog:
    """What an audit has to wait for. Each is records by ``topic/partition``.

    ``open`` stand at or behind the first record of a transaction that is not decided; ``uncollected`` are committed,
    and their number is an upper bound.
    """

    open: dict[str, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    open_letters: dict[str, list[tuple[int, bytes | None]]] = field(default_factory=dict)
    uncollected: dict[str, int] = field(default_factory=dict)

    @property
    def settled(self) -> bool:
        """Whether there is nothing to wait for."""
        return not (self.open or self.open_letters or self.uncollected)


def backlog(settings: AuditSettings, bronze: Bronze) -> Backlog:
    """Look once. BrokerError if the ack topic is not there."""
    topics = Topics(settings.kafka)
    acks, letters = topics.get(settings.kafka.ack_topic), topics.find(settings.kafka.dead_letter_topic)
    ends = bronze.ends()  # after the look at the topics: what is collected in between does no harm
    found = [topic for topic in (acks, letters) if topic is not None]
    return Backlog(
        open=_placed(acks.name, topics.undecided(acks)),
        open_letters=_placed(letters.name, topics.undecided(letters)) if letters else {},
        uncollected={
            f"{topic.name}/{partition}": count
            for topic in found
            for partition, count in topics.committed_from(topic, ends.get(topic.name, {})).items()
        },
    )


def _placed(
    topic: str, records: dict[int, list[tuple[int, bytes | None]]]
) -> dict[str, list[tuple[int, bytes | None]]]:
    return {f"{topic}/{partition}": found for partition, found in records.items()}


def awaited(settings: AuditSettings, bronze: Bronze) -> Backlog:
    """Look until there is nothing to wait for, or for ``settings.wait`` seconds."""
    end = time.monotonic() + settings.wait
    while True:
        found = backlog(settings, bronze)
        if found.settled or time.monotonic() >= end:
            return found
        time.sleep(_LOOK_EVERY)
