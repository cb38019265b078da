"""From the settings to the properties of librdkafka's clients. Pure: no client is made, nothing is imported for one.

Numbers measured for these choices, and the sources, are in docs/decisions/0013.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from worker.kafka.names import CONSUMER_ONLY, JAVA, OWNED, PRODUCER_ONLY, variable_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Properties = dict[str, Any]

LONGEST_POLL_INTERVAL = 86_400.0  # seconds; librdkafka's limit for max.poll.interval.ms
_BATCH_BYTES = 1_000_000  # librdkafka's default for batch.size
_COMMIT_TIME = 60.0  # seconds of the poll interval that a hold leaves for the commit after it
_GIVEN_SHARE = 0.9  # the same as a share, where the user has set the interval

_COMMON: Properties = {
    # A connection that a firewall has dropped is noticed in 10 s instead of 60, and tried again every second: 30 s of
    # black hole then cost 1.4 s more instead of 24.
    "socket.timeout.ms": 10_000,
    "socket.connection.setup.timeout.ms": 5_000,
    "socket.keepalive.enable": True,
    "reconnect.backoff.ms": 100,
    "reconnect.backoff.max.ms": 1_000,
    # New partitions are found within this time; the default is five minutes.
    "topic.metadata.refresh.interval.ms": 30_000,
    # A misspelt topic is an error. The default for consumers, but not for producers.
    "allow.auto.create.topics": False,
}

_CONSUMER: Properties = {
    # Offsets follow confirmed answers and nothing else.
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    # Where nothing was committed, or what was has been deleted: begin with the oldest. "latest" would skip requests.
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    # Where a partition's end lies behind the markers of transactions, no record tells.
    "enable.partition.eof": True,
    # What the client holds ahead of the worker's own queue, per process: 64 MB and 100,000 records by default, and a
    # record of 20 bytes takes some 400 in the client.
    "queued.max.messages.kbytes": 4_096,
    "queued.min.messages": 10_000,
    # The first record after a quiet time, and the refill after a full queue, wait for these.
    "fetch.wait.max.ms": 100,
    "fetch.queue.backoff.ms": 20,
}

_PRODUCER: Properties = {
    # Order and no duplicates within a producer's life; acks=all comes with it and is said for the reader.
    "enable.idempotence": True,
    "acks": "all",
    # For ever: a message reported as timed out may be in the log, and sending it again would make two.
    "message.timeout.ms": 0,
    "retry.backoff.ms": 20,
    # Answers of short tasks go in batches; a long task's answer does not wait for company longer than this.
    "linger.ms": 5,
    # As Kafka's Java clients do it, so that an answer lies where its key is looked for.
    "partitioner": "murmur2_random",
    # The topic's max.message.bytes decides, and is checked before producing; the client's own limit of 1 MB must
    # not refuse what the topic would take.
    "message.max.bytes": 64 * 1024 * 1024,
}

# Which of the user's properties librdkafka refuses under the consumer protocol: the broker decides there.
_BROKERS_OWN = frozenset({"session.timeout.ms", "heartbeat.interval.ms"})
_RESETS = frozenset({"earliest", "beginning", "smallest", "error"})
_NUMBERS = ("max.poll.interval.ms", "session.timeout.ms", "message.max.bytes", "batch.size")  # those we calculate with


@dataclass(frozen=True, slots=True)
class Link:
    """What clients are made from. ``given`` are the ``KAFKA_CONFIG_*`` by property, ``holds`` seconds by protocol."""

    bootstrap: str
    group: str
    given: Mapping[str, str] = field(repr=False)  # secrets included
    holds: Mapping[str, float]


def consumer(link: Link, client_id: str, protocol: str) -> Properties:
    """The properties of a member of the group under ``consumer`` or ``classic``."""
    dropped = PRODUCER_ONLY | (_BROKERS_OWN if protocol == "consumer" else {"group.remote.assignor"})
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
            # A rebalance is noticed at a heartbeat; every three seconds, as by default, makes it slow.
            "heartbeat.interval.ms": max(1, min(1_000, session // 3)),
        }
    return _common(link, client_id) | _CONSUMER | membership | _given(link, dropped)


def producer(link: Link, client_id: str, record_limit: int | None = None) -> Properties:
    """The properties of the producer of answers and dead letters.

    ``record_limit`` are the bytes that each of their topics takes, once they are known.
    """
    rendered = _common(link, client_id) | _PRODUCER | _given(link, CONSUMER_ONLY)
    if record_limit is not None:
        # A topic's max.message.bytes is of a whole batch, and a batch that is refused is not split: small answers
        # would be taken for too large because of their neighbours.
        rendered["batch.size"] = max(1, min(record_limit, int(rendered.get("batch.size", _BATCH_BYTES))))
    return rendered


def common(link: Link, client_id: str) -> Properties:
    """How to reach the brokers, and nothing that only a consumer or a producer knows: for admin clients and tools."""
    return _common(link, client_id) | _given(link, CONSUMER_ONLY | PRODUCER_ONLY)


def _common(link: Link, client_id: str) -> Properties:
    return {"bootstrap.servers": link.bootstrap, "client.id": client_id} | _COMMON


def _given(link: Link, dropped: Iterable[str]) -> Properties:
    left_out = frozenset(dropped)
    return {name: value for name, value in link.given.items() if name not in left_out}


def poll_interval(link: Link, protocol: str) -> float:
    """Seconds a member may go without polling before it is taken for dead."""
    if "max.poll.interval.ms" in link.given:
        return int(link.given["max.poll.interval.ms"]) / 1000
    if protocol == "consumer":
        # A held partition and a task that keeps the interpreter lock in C both stop the poll loop for as long as they
        # like; a process that hangs is found by the supervisor, from outside.
        return LONGEST_POLL_INTERVAL
    # Under classic a member that does not answer holds up the whole group, so it is not given longer than it needs.
    return min(LONGEST_POLL_INTERVAL, max(300.0, 2 * link.holds[protocol] + _COMMIT_TIME))


def hold(link: Link, protocol: str) -> float:
    """Seconds a revoked partition may wait for its running task: as asked for, within the poll interval."""
    interval = poll_interval(link, protocol)
    limit = interval * _GIVEN_SHARE if "max.poll.interval.ms" in link.given else interval - _COMMIT_TIME
    return min(link.holds[protocol], limit)


def _milliseconds(seconds: float) -> int:
    return round(seconds * 1000)


# ---------------------------------------------------------------- what is wrong or strange with the given ones


def refusals(given: Mapping[str, str]) -> dict[str, str]:
    """Why a given property cannot be used: it is the worker's, or the Java clients' alone, or has a wrong value."""
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
    """A line for each given property that will not do what it seems to, under the protocols that ``holds`` names."""
    return [*_without_effect(link), *_shortened_holds(link)]


def _without_effect(link: Link) -> Iterator[str]:
    for name in sorted(_BROKERS_OWN & link.given.keys()):
        if "consumer" in link.holds:
            yield (
                f"{variable_name(name)} has no effect under the consumer protocol: there the broker's "
                f"group.consumer.{name} decides, or consumer.{name} of the group"
            )


def _shortened_holds(link: Link) -> Iterator[str]:
    name = "max.poll.interval.ms"
    for protocol, wanted in link.holds.items():
        if name in link.given and hold(link, protocol) < wanted:
            yield (
                f"{variable_name(name)}={link.given[name]} lets a revoked partition wait {hold(link, protocol):g} s "
                f"under the {protocol} protocol, not {wanted:g} s"
            )
