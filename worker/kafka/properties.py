"""Converts the settings to properties of librdkafka's clients. Pure: creates no client and imports none.

docs/decisions/0013 has the measurements behind these choices.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from worker.kafka.names import CONSUMER_ONLY, JAVA, OWNED, PRODUCER_ONLY, variable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Properties = dict[str, Any]

LONGEST_POLL_INTERVAL = 86_400.0  # seconds; librdkafka's limit for max.poll.interval.ms
_RECEIVE, _RECEIVE_DEFAULT = "receive.message.max.bytes", 100_000_000
_BATCH_BYTES = 1_000_000  # librdkafka's default for batch.size
_COMMIT_TIME = 60.0  # seconds of the poll interval that a hold leaves for the following commit
_GIVEN_SHARE = 0.9  # the largest part of the poll interval for a hold, if the user has set the interval

_COMMON: Properties = {
    # Notice a connection that a firewall has dropped after 10 s instead of 60, and reconnect every second: 30 s without
    # a network then cost 1.4 s more instead of 24.
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 5_000,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    # New partitions are found within this time; the default is five minutes.
    "topic.metadata.refresh.interval.ms": 30_000,
    # Make a misspelt topic an error. That is the default for consumers, but not for producers.
    "allow.auto.create.topics": False,
}

_CONSUMER: Properties = {
    # Commit offsets only after confirmed answers.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Without a committed offset, or after its record was deleted, begin with the oldest record. "latest" would skip
    # requests.
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    # The membership check reads the client's log, down to level 5 (notice).
    "log_level": 6,
    # No record shows where a partition ends when transaction markers follow.
    "enable.partition.eof": True,
    # What the client prefetches for each process, in addition to the worker's queue: 64 MB and 100,000 records by
    # default. A record of 20 bytes takes about 400 in the client.
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 10_000,
    # The first record after an idle time, and the refill of a full queue, wait this long.
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 20,
}

RELIABLE_PRODUCER: Properties = {
    # Keep order and avoid duplicates within a producer's life. This implies acks=all, which is written out for the
    # reader.
    "enable.idempotence": True,
    "acks": "all",
    # With two, the client can report a lost record as delivered. A broker that has just become the leader may refuse
    # the first request and accept the second, if it knows nothing of this producer. docs/decisions/0081
    "max.in.flight": 1,
    # As in Kafka's Java clients, so that an answer is in the partition where they look for its key.
    "partitioner": "murmur2_random",
    # The topic's max.message.bytes applies and is checked before producing. The client's limit, 1 MB by default, must
    # not refuse a record that the topic accepts.
    "message.max.bytes": 64 * 1024 * 1024,
}
"""For every producer of more than one record: none is lost, repeated, or refused by the client alone."""

# For the producers of the worker and of the tools.
_ANY_PRODUCER: Properties = RELIABLE_PRODUCER | {
    # Answers of short tasks go in batches. The answer of a long task waits at most this long for a batch.
    "linger.ms": 5,
    # Refuse a follow-up request to a topic that does not exist after this time. The default, 30 s, is longer than a
    # transaction may take: its time-out would come first, and the same transaction would be tried without end.
    "topic.metadata.propagation.max.ms": 3_000,
}

_PRODUCER: Properties = _ANY_PRODUCER | {
    # No limit: a message that is reported as timed out may be in the log, and sending it again would duplicate it.
    "message.timeout.ms": 0,
    "retry.backoff.ms": 20,
}

_TOOL_PRODUCER: Properties = _ANY_PRODUCER | {
    # The broker applies the topic's limit to a whole batch, and the client does not split a refused one. A tool does
    # not know the topics' limits, so its batches stay small.
    "batch.size": 16 * 1024,
}

# User's properties that librdkafka refuses under the consumer protocol, where the broker decides.
_BROKER_DECIDES = frozenset({"session.timeout.ms", "heartbeat.interval.ms"})
_RESETS = frozenset({"earliest", "beginning", "smallest", "error"})
_NUMBERS = (
    "max.poll.interval.ms",
    "session.timeout.ms",
    "message.max.bytes",
    "batch.size",
    "receive.message.max.bytes",
)  # the worker calculates with these


@dataclass(frozen=True, slots=True)
class Link:
    """The inputs for client properties. ``given``: ``KAFKA_CONFIG_*`` by property. ``holds``: seconds by protocol."""

    bootstrap: str
    group: str
    given: Mapping[str, str] = field(repr=False)  # secrets included
    holds: Mapping[str, float]


def consumer(link: Link, client_id: str, protocol: str) -> Properties:
    """Return the properties of a member of the group under ``consumer`` or ``classic``."""
    dropped = PRODUCER_ONLY | (_BROKER_DECIDES if protocol == "consumer" else {"group.remote.assignor"})
    membership = {
        "group.id": link.group,
        "group.protocol": protocol,
        "max.poll.interval.ms": _milliseconds(poll_interval(link, protocol)),
    }
    if protocol == "classic":
        session = int(link.given.get("session.timeout.ms", 45_000))
        membership |= {
            "partition.assignment.strategy": "cooperative-sticky",
            "session.timeout.ms": session,
            # A member notices a rebalance at its next heartbeat, so the default of three seconds makes rebalances slow.
            "heartbeat.interval.ms": max(1, min(1_000, session // 3)),
        }
    return _common(link, client_id) | _CONSUMER | membership | _given(link, dropped)


def producer(link: Link, client_id: str, record_limit: int | None = None) -> Properties:
    """Return the properties of the producer of answers and dead letters.

    ``record_limit`` is the number of bytes that each of their topics accepts, once known.
    """
    rendered = _common(link, client_id) | _PRODUCER | _given(link, CONSUMER_ONLY)
    if record_limit is not None:
        # A topic's max.message.bytes applies to a whole batch, and a refused batch is not split: small answers would
        # fail as too large because of their neighbours.
        rendered["batch.size"] = max(1, min(record_limit, int(rendered.get("batch.size", _BATCH_BYTES))))
    return rendered


def tool_producer(reach: Mapping[str, Any], timeout: float) -> Properties:
    """Return the properties of a tool's producer. ``reach`` is from ``common``; ``timeout`` is in seconds
    per record.
    """
    return {**reach, **_TOOL_PRODUCER, "message.timeout.ms": _milliseconds(timeout)}


def common(link: Link, client_id: str) -> Properties:
    """Return the properties for reaching the brokers, for admin clients and tools."""
    rendered = _common(link, client_id) | _given(link, CONSUMER_ONLY | PRODUCER_ONLY)
    if _RECEIVE in rendered:  # the client refuses less than it fetches at a time, and a worker's consumer fetches less
        rendered[_RECEIVE] = max(int(rendered[_RECEIVE]), _RECEIVE_DEFAULT)
    return rendered


def _common(link: Link, client_id: str) -> Properties:
    return {"bootstrap.servers": link.bootstrap, "client.id": client_id} | _COMMON


def _given(link: Link, dropped: Iterable[str]) -> Properties:
    left_out = frozenset(dropped)
    return {name: value for name, value in link.given.items() if name not in left_out}


def poll_interval(link: Link, protocol: str) -> float:
    """Return the seconds that a member may go without polling before it counts as dead."""
    if "max.poll.interval.ms" in link.given:
        return int(link.given["max.poll.interval.ms"]) / 1000
    if protocol == "consumer":
        # A held partition, and a task that holds the interpreter lock in C, stop the main loop without limit. The
        # supervisor detects a process that hangs.
        return LONGEST_POLL_INTERVAL
    # Under classic, a member that does not respond blocks the whole group, so it gets only the time it needs.
    return min(LONGEST_POLL_INTERVAL, max(300.0, 2 * link.holds[protocol] + _COMMIT_TIME))


def hold(link: Link, protocol: str) -> float:
    """Return the seconds that a revoked partition may wait for its task: as configured, within the poll interval."""
    interval = poll_interval(link, protocol)
    limit = interval * _GIVEN_SHARE if "max.poll.interval.ms" in link.given else interval - _COMMIT_TIME
    return min(link.holds[protocol], limit)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


# ---------------------------------------------------------------- the user's properties


def refusals(given: Mapping[str, str]) -> dict[str, str]:
    """Return why a given property cannot be used: the worker sets it, only Java clients have it, or it is invalid."""
    return {name: reason for name in sorted(given) if (reason := _refusal(name, given[name]))}


def _refusal(name: str, value: str) -> str | None:
    if name in OWNED:
        return f"cannot be set: {OWNED[name]}"
    if name in JAVA:
        return f"is a property of Java clients: {JAVA[name]}"
    if name == "auto.offset.reset" and value.strip().lower() not in _RESETS:
        return "would skip requests: leave it out, or set earliest or error"
    if name in _NUMBERS and not value.strip().isdecimal():
        return "must be a whole number"
    return None


def warnings(link: Link) -> list[str]:
    """Return a line for each property with less effect than expected, under the protocols in ``holds``."""
    return [*_without_effect(link), *_shortened_holds(link)]


def _without_effect(link: Link) -> Iterator[str]:
    for name in sorted(_BROKER_DECIDES & link.given.keys()):
        if "consumer" in link.holds:
            yield (
                f"{variable_name(name)} has no effect under the consumer protocol: there the broker's "
                f"group.consumer.{name} decides, or consumer.{name} of the group"
            )


def _shortened_holds(link: Link) -> Iterator[str]:
    name = "max.poll.interval.ms"
    for protocol, configured in link.holds.items():
        if name in link.given and hold(link, protocol) < configured:
            yield (
                f"{variable_name(name)}={link.given[name]} lets a revoked partition wait {hold(link, protocol):g} s "
                f"under the {protocol} protocol, not {configured:g} s"
            )
