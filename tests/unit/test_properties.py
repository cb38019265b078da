"""The properties of the Kafka clients: what the worker sets, what a user may set, and what librdkafka accepts."""

from __future__ import annotations

import ctypes
import re
from typing import TYPE_CHECKING, Any

import confluent_kafka.cimpl
import pytest

from tests.unit.environment import NEEDED
from worker.errors import SettingsError
from worker.kafka import names, validate
from worker.kafka.properties import (
    Link,
    common,
    consumer,
    hold,
    poll_interval,
    producer,
    refusals,
    tool_producer,
    warnings,
)
from worker.settings import Settings
from worker.supervisor import render

if TYPE_CHECKING:
    from pathlib import Path

HOLDS = {"consumer": 86_400.0, "classic": 60.0}
# Properties of librdkafka that no variable can set: callbacks, and those for programs in C.
NOT_BY_TEXT = re.compile(r"_cb$|^opaque$|^interceptors$|^default_topic_conf$|^ssl_|^msg_order_cmp$|^enabled_events$")


def link(holds: dict[str, float] = HOLDS, **given: str) -> Link:
    """Return a link with these properties. ``__`` in a name stands for ``.``."""
    return Link("kafka:9092", "workers", {name.replace("__", "."): text for name, text in given.items()}, holds)


# ---------------------------------------------------------------- what the worker sets


@pytest.mark.parametrize("protocol", HOLDS)
def test_the_worker_owns_the_offsets(protocol: str) -> None:
    """The client stores and commits no offset, skips none, and reads only committed records."""
    made = consumer(link(), "host-0", protocol)

    assert (made["enable.auto.commit"], made["enable.auto.offset.store"]) == (False, False)
    assert (made["auto.offset.reset"], made["isolation.level"]) == ("earliest", "read_committed")
    assert (made["group.id"], made["group.protocol"], made["client.id"]) == ("workers", protocol, "host-0")


def test_answers_are_confirmed() -> None:
    """The producer is idempotent, never gives up on an answer, and chooses partitions as Java clients do."""
    made = producer(link(), "host-0")

    assert (made["enable.idempotence"], made["acks"], made["message.timeout.ms"]) == (True, "all", 0)
    assert made["partitioner"] == "murmur2_random"


def test_a_tools_producer_differs_only_in_times_and_batches() -> None:
    """It is as safe as the worker's. But it gives up on a record after a time, and does not know the topics' limits."""
    reach = common(link(), "tool")
    tool, worker = tool_producer(reach, 7.5), producer(link(), "tool")
    other = {name for name in tool.keys() | worker.keys() if tool.get(name) != worker.get(name)}

    assert other == {"message.timeout.ms", "retry.backoff.ms", "batch.size"}
    assert tool["message.timeout.ms"] == 7_500


@pytest.mark.parametrize(
    ("limit", "given", "batch"), [(5_000_000, {}, 1_000_000), (2_000, {}, 2_000), (2_000, {"batch__size": "500"}, 500)]
)
def test_a_batch_is_not_larger_than_the_topics_limit(limit: int, given: dict[str, str], batch: int) -> None:
    """The limit applies to a whole batch. In a larger batch, small answers fail because of the size of the others."""
    assert producer(link(HOLDS, **given), "host-0", limit)["batch.size"] == batch


def test_the_consumer_protocol_leaves_sessions_to_the_broker() -> None:
    """The client may poll as rarely as once a day, and does not decide about the session."""
    made = consumer(link(session__timeout__ms="6000", heartbeat__interval__ms="500"), "host-0", "consumer")

    assert made["max.poll.interval.ms"] == 86_400_000
    assert {"session.timeout.ms", "heartbeat.interval.ms", "partition.assignment.strategy"}.isdisjoint(made)


def test_the_classic_protocol_is_cooperative() -> None:
    """Sessions of 45 s, heartbeats every second, and partitions that stay while others move."""
    made = consumer(link(), "host-0", "classic")

    assert made["partition.assignment.strategy"] == "cooperative-sticky"
    assert (made["session.timeout.ms"], made["heartbeat.interval.ms"]) == (45_000, 1_000)


def test_a_given_session_timeout_sets_the_heartbeat_interval() -> None:
    """The interval is a third of a short session, unless it is given too."""
    short = consumer(link(session__timeout__ms="1500"), "host-0", "classic")
    given = consumer(link(session__timeout__ms="1500", heartbeat__interval__ms="100"), "host-0", "classic")

    assert (short["session.timeout.ms"], short["heartbeat.interval.ms"]) == ("1500", 500)
    assert given["heartbeat.interval.ms"] == "100"


def test_the_users_properties_override_the_defaults() -> None:
    """They do so in every client, but no client gets the properties of another kind of client."""
    given = link(fetch__wait__max__ms="7", linger__ms="8", socket__timeout__ms="9000", sasl__username="me")
    made: dict[str, dict[str, Any]] = {
        "consumer": consumer(given, "host-0", "classic"),
        "producer": producer(given, "host-0"),
        "tool": common(given, "host-0"),
    }

    assert {name: properties.get("fetch.wait.max.ms") for name, properties in made.items()} == {
        "consumer": "7",
        "producer": None,
        "tool": None,
    }
    assert {name: properties.get("linger.ms") for name, properties in made.items()} == {
        "consumer": None,
        "producer": "8",
        "tool": None,
    }
    assert all(p["socket.timeout.ms"] == "9000" and p["sasl.username"] == "me" for p in made.values())


# ---------------------------------------------------------------- holds


@pytest.mark.parametrize(
    ("protocol", "wanted", "interval", "held"),
    [
        ("consumer", 3600.0, 86_400.0, 3600.0),
        ("consumer", 86_400.0, 86_400.0, 86_340.0),
        ("classic", 60.0, 300.0, 60.0),
        ("classic", 600.0, 1260.0, 600.0),
        ("classic", 86_400.0, 86_400.0, 86_340.0),
    ],
)
def test_a_hold_ends_within_the_poll_interval(protocol: str, wanted: float, interval: float, held: float) -> None:
    """The interval has room for the hold and the commit after it."""
    made = link({protocol: wanted})

    assert (poll_interval(made, protocol), hold(made, protocol)) == (interval, held)
    assert warnings(made) == []


def test_a_given_poll_interval_limits_the_hold() -> None:
    """A hold may take nine tenths of the interval. If that is less than configured, there is a warning."""
    made = link(max__poll__interval__ms="100000")

    assert (hold(made, "consumer"), hold(made, "classic")) == (90.0, 60.0)
    (warning,) = warnings(made)
    assert warning.startswith("KAFKA_CONFIG_MAX_POLL_INTERVAL_MS=100000 lets a revoked partition wait 90 s")


def test_a_session_timeout_without_effect_causes_a_warning() -> None:
    """The warning appears only if the consumer protocol may be used."""
    (warning,) = warnings(link(session__timeout__ms="6000"))

    assert "has no effect under the consumer protocol" in warning
    assert warnings(link({"classic": 60.0}, session__timeout__ms="6000")) == []


# ---------------------------------------------------------------- what is refused


@pytest.mark.parametrize("name", names.OWNED)
def test_a_property_that_the_worker_sets_is_refused(name: str) -> None:
    """The error gives the reason."""
    assert refusals({name: "1"}) == {name: f"cannot be set: {names.OWNED[name]}"}


@pytest.mark.parametrize("name", names.JAVA)
def test_a_property_of_java_clients_is_refused(name: str) -> None:
    """The error says what to use instead."""
    assert refusals({name: "1"})[name].startswith("is a property of Java clients: ")


def test_an_offset_reset_that_skips_requests_is_refused() -> None:
    """A group may begin with the oldest request or refuse to begin. It never skips requests."""
    accepted = {text for text in ("earliest", "error", "Beginning", "latest", "end", "largest", "none") if _reset(text)}

    assert accepted == {"earliest", "error", "Beginning"}


def _reset(text: str) -> bool:
    return not refusals({"auto.offset.reset": text})


def test_a_property_that_the_worker_calculates_with_must_be_a_number() -> None:
    """All other properties are left to librdkafka's check."""
    assert refusals({"max.poll.interval.ms": "5m"}) == {"max.poll.interval.ms": "must be a whole number"}
    assert refusals({"max.poll.interval.ms": "300000", "socket.timeout.ms": "x"}) == {}


# ---------------------------------------------------------------- against librdkafka itself


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return librdkafka's table of properties, with the client that each belongs to (``C``, ``P`` or ``*``)."""
    path: Path = tmp_path_factory.mktemp("librdkafka") / "properties.md"
    libc, client = ctypes.CDLL(None), ctypes.CDLL(confluent_kafka.cimpl.__file__)
    libc.fopen.restype = ctypes.c_void_p
    file = ctypes.c_void_p(libc.fopen(str(path).encode(), b"w"))
    client.rd_kafka_conf_properties_show(file)
    libc.fclose(file)
    return dict(re.findall(r"^(\S+) +\| +([CP*]) +\|", path.read_text(), re.MULTILINE))


def test_librdkafka_has_the_same_properties_for_each_kind_of_client(table: dict[str, str]) -> None:
    """Our two lists are librdkafka's, without the properties that are refused or cannot be set by a text."""
    settable = {
        name: client for name, client in table.items() if name not in names.OWNED and not NOT_BY_TEXT.search(name)
    }

    assert {name for name, client in settable.items() if client == "C"} == names.CONSUMER_ONLY
    assert {name for name, client in settable.items() if client == "P"} == names.PRODUCER_ONLY


def test_librdkafka_knows_the_properties_that_we_name(table: dict[str, str]) -> None:
    """These are the names that we refuse, rename or treat as files. It does not know the Java clients' properties."""
    of_the_binding = {"logger", "default.topic.config"}

    assert names.OWNED.keys() - of_the_binding <= table.keys()
    assert table.keys() >= names.FILE_PROPERTIES
    assert {*names.ALIASES, *names.ALIASES.values()} <= table.keys()
    assert names.JAVA.keys().isdisjoint(table)


def test_every_property_can_be_written_as_a_variable(table: dict[str, str]) -> None:
    """The name of the variable leads back to the name of the property."""
    settable = [name for name in table if not NOT_BY_TEXT.search(name)]

    assert [name for name in settable if _round_trip(name) != name] == []


def _round_trip(name: str) -> str:
    return names.property_name(names.variable_name(name).removeprefix(names.PREFIX))


@pytest.mark.parametrize("protocol", ["auto", "consumer", "classic"])
def test_the_client_accepts_the_properties_that_we_set(protocol: str) -> None:
    """All our clients can be created, also with a hold that needs a long poll interval."""
    settings = Settings.load(NEEDED | {"KAFKA_GROUP_PROTOCOL": protocol, "WORKER_REVOKE_HOLD_CLASSIC": "5h"})
    target = render.target(settings)
    validate.check(target)

    assert list(target.consumers) == (["consumer", "classic"] if protocol == "auto" else [protocol])


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({"SOCKET_TIMEOUT": "1"}, 'KAFKA_CONFIG_SOCKET_TIMEOUT: No such configuration property: "socket.timeout"'),
        (
            {"LINGER_MS": "x"},
            'KAFKA_CONFIG_LINGER_MS: Invalid value for configuration property "queue.buffering.max.ms"',
        ),
        ({"FETCH_WAIT_MAX_MS": "-1"}, "KAFKA_CONFIG_FETCH_WAIT_MAX_MS: Configuration property"),
        ({"SECURITY_PROTOCOL": "TLS"}, 'KAFKA_CONFIG_SECURITY_PROTOCOL: Invalid value "TLS"'),
        (
            {"SECURITY_PROTOCOL": "SASL_SSL"},
            "KAFKA_CONFIG_SASL_MECHANISM: No provider for SASL mechanism GSSAPI; set PLAIN",
        ),
        (
            {"SECURITY_PROTOCOL": "SSL", "SSL_CA_LOCATION": "/none"},
            "KAFKA_CONFIG_SSL_CA_LOCATION: ssl.ca.location failed",
        ),
    ],
)
def test_a_property_that_the_client_rejects_is_an_error(given: dict[str, str], line: str) -> None:
    """The error is one line that names the variable, although several clients reject it."""
    settings = Settings.load(NEEDED | {f"KAFKA_CONFIG_{name}": text for name, text in given.items()})
    with pytest.raises(SettingsError) as caught:
        validate.check(render.target(settings))

    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
