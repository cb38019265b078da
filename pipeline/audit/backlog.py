"""The backlog of an audit: undecided records, and committed records that are not collected yet."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from pipeline.kafka.topics import Topics
from pipeline.lake.bronze import before
from pipeline.lake.checkpoint import Checkpoint

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from pipeline.kafka.topics import Undecided
    from pipeline.lake.bronze import Bronze
    from pipeline.settings import AuditSettings

_LOOK_EVERY = 1.0  # seconds between two checks while waiting


@dataclass(frozen=True)
class Backlog:
    """The records that an audit must wait for, by ``topic/partition``.

    ``open`` records stand at or behind the first record of an undecided transaction. ``uncollected`` records are
    committed, and their number is an upper bound.
    """

    open: dict[str, Undecided] = field(default_factory=dict)
    open_dead_letters: dict[str, Undecided] = field(default_factory=dict)
    uncollected: dict[str, int] = field(default_factory=dict)
    ends: dict[str, dict[int, int]] = field(default_factory=dict)  # of the table

    @property
    def settled(self) -> bool:
        """Return whether there is nothing to wait for."""
        return not (self.open or self.open_dead_letters or self.uncollected)


def backlog(settings: AuditSettings, bronze: Bronze) -> Backlog:
    """Check once. Raise BrokerError if the ack topic does not exist."""
    topics = Topics(settings.kafka)
    acks, dead_letters = topics.get(settings.kafka.ack_topic), topics.find(settings.kafka.dead_letter_topic)
    ends = collected_ends(settings, bronze)  # read after the topics: records collected in between do no harm
    found = [topic for topic in (acks, dead_letters) if topic is not None]
    return Backlog(
        open=_placed(acks.name, topics.undecided(acks)),
        open_dead_letters=_placed(dead_letters.name, topics.undecided(dead_letters)) if dead_letters else {},
        uncollected={
            f"{topic.name}/{partition}": count
            for topic in found
            for partition, count in topics.committed_from(topic, ends.get(topic.name, {})).items()
        },
        ends=ends,
    )


def collected_ends(settings: AuditSettings, bronze: Bronze) -> dict[str, dict[int, int]]:
    """Return the offset up to which each partition is collected, with the transaction markers that follow."""
    ends = {topic: dict(partitions) for topic, partitions in bronze.ends().items()}
    checkpoint = Checkpoint(bronze.files, settings.checkpoint)
    committed = checkpoint.committed() if checkpoint.query_id() in bronze.queries() else {}
    for collected in (bronze.covered(), committed):
        for topic, positions in collected.items():
            known = ends.setdefault(topic, {})
            known.update({p: max(offset, known.get(p, 0)) for p, offset in positions.items()})
    return ends


def read_up_to(bronze: Bronze, ends: dict[str, dict[int, int]]) -> DataFrame:
    """Return the job's records before ``ends``, where the table ended when the backlog was looked up.

    A ``collect`` may add records during an audit. Without their requests, or their dead letters, they would mislead it.
    """
    table = bronze.read()
    grown = any(
        end > ends.get(topic, {}).get(partition, 0)
        for topic, offsets in bronze.ends().items()
        for partition, end in offsets.items()
    )
    # The condition looks at each row, and usually nothing was added.
    return table.where(before(ends)) if grown else table


def _placed(topic: str, records: dict[int, Undecided]) -> dict[str, Undecided]:
    return {f"{topic}/{partition}": found for partition, found in records.items()}


def awaited(settings: AuditSettings, bronze: Bronze) -> Backlog:
    """Check until there is nothing to wait for, or for ``settings.wait`` seconds."""
    end = time.monotonic() + settings.wait
    while True:
        found = backlog(settings, bronze)
        if found.settled or time.monotonic() >= end:
            return found
        time.sleep(_LOOK_EVERY)
