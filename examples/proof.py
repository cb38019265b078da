"""What the demo proves from the topics themselves, whoever filled them: one answer per request, and the right one."""

from __future__ import annotations

import contextlib
import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, NamedTuple

from examples.make_configurations import IMPOSSIBLE
from worker.codec import DEAD_LETTERED, OK, Response, decode_request, decode_response
from worker.kafka.reader import Reader

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from worker.core.model import Partition, Record
    from worker.kafka.cluster import Cluster

Origin = tuple[str, int, int]
FEW = 5  # exceptions that a complaint names


class Evidence(NamedTuple):
    """Everything that stands in the topics."""

    requests: dict[Origin, Any]  # the payload of each
    answers: dict[Origin, list[Response]]
    letters: list[Origin]  # where the dead letters came from


def gather(cluster: Cluster, properties: Mapping[str, Any], requests: str, answers: str, letters: str) -> Evidence:
    """Read the three topics from their beginnings to their ends."""

    def everything(topic: str) -> list[Record]:
        starts = dict.fromkeys(cluster.partitions(topic), 0)
        with contextlib.closing(Reader(properties, starts)) as reader:
            return list(reader.to_end())

    given: dict[Origin, list[Response]] = defaultdict(list)
    for record in everything(answers):
        response = decode_response(record.value)
        given[response.origin.topic, response.origin.partition, response.origin.offset].append(response)
    return Evidence(
        {
            (*record.partition, record.offset): json.loads(decode_request(record.value).payload)
            for record in everything(requests)
        },
        dict(given),
        [_origin_of_letter(dict(record.headers)) for record in everything(letters)],
    )


def _origin_of_letter(headers: Mapping[str, bytes | None]) -> Origin:
    topic, partition, offset = (
        (headers[f"x-origin-{name}"] or b"").decode() for name in ("topic", "partition", "offset")
    )
    return topic, int(partition), int(offset)


def complaints(evidence: Evidence) -> list[str]:
    """What is not as it must be; nothing if the proof holds."""
    requests, answers = evidence.requests, evidence.answers
    impossible = {origin for origin, payload in requests.items() if payload in IMPOSSIBLE}
    dead = {origin for origin, given in answers.items() if any(answer.outcome == DEAD_LETTERED for answer in given)}
    good = {origin for origin, given in answers.items() if all(answer.outcome == OK for answer in given)}
    found = {
        "requests without an answer": requests.keys() - answers.keys(),
        "answers to what was never asked": answers.keys() - requests.keys(),
        "requests answered more than once": {origin for origin, given in answers.items() if len(given) > 1},
        "possible configurations without a result": requests.keys() - impossible - good,
        "impossible configurations that were not dead-lettered": impossible - dead,
        "dead-letter answers without a dead letter, or the reverse": dead ^ set(evidence.letters),
        "requests with more than one dead letter": {o for o, count in Counter(evidence.letters).items() if count > 1},
    }
    return [f"{len(bad)} {what}: {sorted(bad)[:FEW]}" for what, bad in found.items() if bad]


def lag(cluster: Cluster, group: str, partitions: Iterable[Partition]) -> int:
    """Requests that the group has not committed."""
    partitions = list(partitions)
    ends, committed = cluster.spans(partitions), cluster.committed(group, partitions)
    return sum(ends[place].end - (committed[place] or 0) for place in partitions)
