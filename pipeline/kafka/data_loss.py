"""Checks that the topics still hold the records that a stream is about to read. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pipeline.kafka.topics import Topic
    from pipeline.lake.checkpoint import Positions


def recreated_topics(topics: Mapping[str, Topic], known: Mapping[str, str]) -> list[str]:
    """Return a line for each topic that was recreated since it was read. Its offsets mean other records now."""
    return [
        f"topic {name} was deleted and recreated since it was last collected"
        for name, topic in sorted(topics.items())
        if known.get(name, topic.id) != topic.id
    ]


def find_data_loss(topics: Mapping[str, Topic], positions: Positions) -> list[str]:
    """Return a line for each partition that no longer holds the records from these offsets on."""
    return [line for name, wanted in sorted(positions.items()) for line in _losses(topics.get(name), name, wanted)]


def _losses(topic: Topic | None, name: str, wanted: Mapping[int, int]) -> Iterator[str]:
    if topic is None:
        yield f"topic {name} is gone"
        return
    for partition, offset in sorted(wanted.items()):
        span = topic.spans.get(partition)
        if span is None:
            yield f"partition {partition} of {name} is gone"
        elif span.low > offset:
            yield f"records {offset} to {span.low - 1} of {name}/{partition} were deleted before they were collected"
        elif span.high < offset:
            yield f"{name}/{partition} ends at {span.high}, and was collected up to {offset}: records were cut off"
