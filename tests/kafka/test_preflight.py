"""Preflight against a real broker: its results, the topic it creates, its failures and its duration."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
import uuid
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import KafkaError, Producer, admin

from tests.kafka_broker import running_broker
from worker.errors import BrokerError, ExitCode
from worker.kafka import preflight
from worker.kafka.admin import Admin
from worker.settings import Settings
from worker.supervisor import render

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.kafka_broker import Broker
    from worker.kafka.diagnosis import Topic
    from worker.kafka.facts import Facts, Target

pytestmark = pytest.mark.kafka

ck: Any = admin  # its types do not export the names that it documents

# One listener, with passwords. \\u003b is a semicolon; a plain one would separate properties here.
SECURED = r"""
listener.security.protocol.map=PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
username="admin" password="admin" user_admin="admin" user_app="app"\u003b
authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer
super.users=User:admin;User:ANONYMOUS
"""


def target(bootstrap: str, requests: str, answers: str, **variables: str) -> Target:
    """Return the target that preflight gets from these settings."""
    return render.target(
        Settings.load(
            {
                "KAFKA_BOOTSTRAP_SERVER": bootstrap,
                "KAFKA_REQUEST_TOPIC": requests,
                "KAFKA_ACK_TOPIC": answers,
                "KAFKA_CONSUMER_GROUP_ID": f"group-{uuid.uuid4().hex[:8]}",
                "KAFKA_CONNECT_TIMEOUT": "10s",
                "WORKER_HANDLER": "package.module:function",
                **variables,
            }
        )
    )


def run(goal: Target) -> Facts:
    return preflight.run(goal, lambda _: None)


def look(broker: Broker, topic: str) -> Any:
    return Admin({"bootstrap.servers": broker.bootstrap}).topics([topic], 5)[topic]


def config(broker: Broker, topic: str) -> Any:
    return Admin({"bootstrap.servers": broker.bootstrap}).configs([topic], 5)[topic]


# ---------------------------------------------------------------- results


def test_the_partitions_of_all_request_topics_are_counted(broker: Broker) -> None:
    """Preflight returns their sum."""
    one, two, answers = broker.topic(3), broker.topic(2), broker.topic(1)

    assert run(target(broker.bootstrap, f"{one},{two}", answers)).partitions == 5


def test_a_dead_letter_topic_is_created_like_the_request_topic(broker: Broker) -> None:
    """It has as many partitions and replicas, and room for a request and its headers. It is created only once."""
    requests, answers = broker.topic(3, {"max.message.bytes": "2000000"}), broker.topic(1)
    goal = target(broker.bootstrap, requests, answers)
    first, second = run(goal), run(goal)
    made: Topic = look(broker, f"{requests}.dlq")

    assert (made.partitions, made.replicas) == (3, 1)
    assert config(broker, f"{requests}.dlq")["max.message.bytes"] == "2065536"
    assert first.warnings == (f"created dead-letter topic '{requests}.dlq' with 3 partitions",)
    assert second.warnings == ()
    assert first.max_dead_letter_bytes > 2_000_000


def test_the_topic_accepts_an_answer_of_the_maximum_size(broker: Broker) -> None:
    """Preflight returns this size in bytes."""
    requests, answers = broker.topic(1), broker.topic(1, {"max.message.bytes": "50000"})
    goal = target(broker.bootstrap, requests, answers)
    room = run(goal).max_answer_bytes
    failures: list[Any] = []
    producer = Producer(goal.producer)
    producer.produce(answers, b"x" * (room - 3), b"key", on_delivery=lambda error, _: failures.append(error))
    producer.flush(10)

    assert 48_000 < room < 50_000
    assert failures == [None]


def test_the_message_size_limit_of_the_client_counts(broker: Broker) -> None:
    """A message.max.bytes from the user limits answers and dead letters below the limits of the topics."""
    requests, answers = broker.topic(1), broker.topic(1)
    facts = run(target(broker.bootstrap, requests, answers, KAFKA_CONFIG_MESSAGE_MAX_BYTES="20000"))

    assert facts.max_answer_bytes == facts.max_dead_letter_bytes < 20_000
    assert "raise its max.message.bytes" in "".join(facts.warnings)


def test_preflight_warns_about_a_compacted_ack_topic(broker: Broker) -> None:
    """Such a topic refuses answers without a key."""
    requests, answers = broker.topic(1), broker.topic(1, {"cleanup.policy": "compact"})

    assert f"topic '{answers}' is compacted" in "".join(run(target(broker.bootstrap, requests, answers)).warnings)


# ---------------------------------------------------------------- topics that are missing


@pytest.mark.parametrize("variable", ["KAFKA_REQUEST_TOPIC", "KAFKA_ACK_TOPIC"])
def test_preflight_waits_for_a_missing_topic_and_then_names_it(broker: Broker, variable: str) -> None:
    """It does not create the topic by looking for it."""
    requests, answers, missing = broker.topic(1), broker.topic(1), f"missing-{uuid.uuid4().hex[:8]}"
    began = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        run(target(broker.bootstrap, requests, answers, **{variable: missing, "KAFKA_CONNECT_TIMEOUT": "1s"}))

    assert 1 <= time.monotonic() - began < 3
    assert str(caught.value).startswith(f"topic '{missing}' ({variable}) does not exist: create it")
    assert look(broker, missing).code == "UNKNOWN_TOPIC_OR_PART"
    assert look(broker, f"{missing}.dlq").code == "UNKNOWN_TOPIC_OR_PART"


def test_preflight_continues_when_a_missing_topic_is_created(broker: Broker) -> None:
    """It reports once that it waits."""
    requests, late, said = broker.topic(1), f"late-{uuid.uuid4().hex[:8]}", []
    create = threading.Event()

    def report(line: str) -> None:
        said.append(line)
        create.set()

    def create_it() -> None:
        create.wait(10)
        client = ck.AdminClient({"bootstrap.servers": broker.bootstrap})
        client.create_topics([ck.NewTopic(late, 1, 1)])[late].result(10)

    creator = threading.Thread(target=create_it)
    creator.start()
    facts = preflight.run(target(broker.bootstrap, requests, late), report)
    creator.join()

    assert facts.partitions == 1
    assert [line.partition(": ")[0] for line in said] == ["waiting up to 10 s"]


# ---------------------------------------------------------------- brokers that cannot be reached


@contextlib.contextmanager
def black_hole() -> Iterator[str]:
    """Yield an address that accepts connections and never replies."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"127.0.0.1:{server.getsockname()[1]}"


def test_a_broker_that_does_not_reply_is_reported_after_the_time_out() -> None:
    """The time-out is exceeded by less than two seconds."""
    began = time.monotonic()
    with black_hole() as address, pytest.raises(BrokerError) as caught:
        run(target(address, "requests", "answers", KAFKA_CONNECT_TIMEOUT="2s"))

    assert 2 <= time.monotonic() - began < 4
    assert caught.value.exit_code is ExitCode.BROKER_UNREACHABLE
    assert str(caught.value).startswith(f"cannot reach Kafka at {address} (no answer): check KAFKA_BOOTSTRAP_SERVER")
    assert str(caught.value).endswith("(waited 2 s, see KAFKA_CONNECT_TIMEOUT)")


@pytest.mark.parametrize(
    ("address", "variables", "said"),
    [
        ("127.0.0.1:1", {}, ("cannot reach Kafka at 127.0.0.1:1", "Connection refused")),
        ("nowhere.invalid:9092", {}, ("a host of Kafka at nowhere.invalid:9092 is not known", "advertised.listeners")),
        (None, {"KAFKA_CONFIG_SECURITY_PROTOCOL": "SSL"}, ("no TLS connection", "KAFKA_CONFIG_SECURITY_PROTOCOL")),
    ],
)
def test_the_error_says_why_there_is_no_connection(
    broker: Broker,
    address: str | None,
    variables: dict[str, str],
    said: tuple[str, ...],
    capfd: pytest.CaptureFixture[str],
) -> None:
    """It is one line with the cause and the setting to check. The client itself prints nothing."""
    with pytest.raises(BrokerError) as caught:
        run(target(address or broker.bootstrap, "requests", "answers", KAFKA_CONNECT_TIMEOUT="1s", **variables))

    assert [part for part in said if part not in str(caught.value)] == []
    assert "\n" not in str(caught.value)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(("codes", "reason"), [([], None), ([KafkaError._RESOLVE], "_RESOLVE")])
def test_the_error_all_brokers_down_is_not_reported_as_a_cause(codes: list[int], reason: str | None) -> None:
    """It only repeats that no broker could be reached. The error before it has the cause."""
    client = Admin({"bootstrap.servers": "127.0.0.1:1"})
    for code in (*codes, KafkaError._ALL_BROKERS_DOWN):
        client._on_error(KafkaError(code))

    assert (client.trouble.code if client.trouble else None) == reason


# ---------------------------------------------------------------- passwords and permissions


class Secured:
    """A broker with passwords, where user ``app`` has only the permissions that it has been granted."""

    def __init__(self, broker: Broker) -> None:
        self.bootstrap = broker.bootstrap
        self._admin = ck.AdminClient(
            {
                "bootstrap.servers": broker.bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "admin",
                "sasl.password": "admin",
            }
        )
        self.requests, self.answers, self.group = (f"{name}-{uuid.uuid4().hex[:8]}" for name in "rag")
        for made in self._admin.create_topics(
            [ck.NewTopic(self.requests, 2, 1), ck.NewTopic(self.answers, 1, 1)]
        ).values():
            made.result(10)

    def grant(self, kind: str, name: str, operation: str) -> None:
        resource, literal = ck.ResourceType[kind], ck.ResourcePatternType.LITERAL
        may, allow = ck.AclOperation[operation], ck.AclPermissionType.ALLOW
        binding = ck.AclBinding(resource, name, literal, "User:app", "*", may, allow)
        self._admin.create_acls([binding])[binding].result(10)

    def target(self, password: str = "app", **variables: str) -> Target:
        login = {
            "KAFKA_CONFIG_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "KAFKA_CONFIG_SASL_MECHANISM": "PLAIN",
            "KAFKA_CONFIG_SASL_USERNAME": "app",
            "KAFKA_CONFIG_SASL_PASSWORD": password,
            "KAFKA_CONSUMER_GROUP_ID": self.group,
            "KAFKA_CONNECT_TIMEOUT": "500ms",
        }
        return target(self.bootstrap, self.requests, self.answers, **login | variables)


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with running_broker(SECURED) as broker:
        yield Secured(broker)


def test_a_wrong_password_is_reported_without_a_wait(secured: Secured) -> None:
    """Waiting would not change it. The error does not contain the password."""
    began = time.monotonic()
    with pytest.raises(BrokerError) as caught:
        run(secured.target("tr0ub4dor", KAFKA_CONNECT_TIMEOUT="30s"))

    assert time.monotonic() - began < 10
    assert str(caught.value).startswith(f"Kafka at {secured.bootstrap} refuses the credentials")
    assert "KAFKA_CONFIG_SASL_PASSWORD" in str(caught.value)
    assert "tr0ub4dor" not in str(caught.value)


def test_an_unsupported_mechanism_is_reported(secured: Secured) -> None:
    """The error names the mechanisms that the broker supports."""
    with pytest.raises(BrokerError, match=r"refuses the credentials .*supported mechanisms: PLAIN"):
        run(secured.target(KAFKA_CONFIG_SASL_MECHANISM="SCRAM-SHA-256"))


def test_each_missing_permission_is_named(secured: Secured) -> None:
    """There is one error after another until all are granted. A limit that cannot be read counts as the default."""
    dead_letters = f"{secured.requests}.dlq"
    for kind, name, operation, said in (
        ("TOPIC", secured.requests, "READ", f"no permission to READ topic '{secured.requests}' (KAFKA_REQUEST_TOPIC)"),
        ("TOPIC", secured.answers, "WRITE", f"no permission to WRITE topic '{secured.answers}' (KAFKA_ACK_TOPIC)"),
        ("TOPIC", dead_letters, "WRITE", f"no permission to WRITE topic '{dead_letters}' (KAFKA_DEAD_LETTER_TOPIC)"),
        (
            "TOPIC",
            dead_letters,
            "CREATE",
            f"'{dead_letters}' does not exist and cannot be created (no permission to create it)",
        ),
        ("GROUP", secured.group, "READ", f"no permission to READ group '{secured.group}'"),
    ):
        with pytest.raises(BrokerError) as caught:
            run(secured.target())
        assert said in str(caught.value)
        secured.grant(kind, name, operation)
    facts = run(secured.target(KAFKA_CONNECT_TIMEOUT="5s"))

    assert (facts.partitions, facts.max_answer_bytes) == (2, 1_048_588 - 1024)
    assert "cannot read the configuration of topic" in "".join(facts.warnings)
