"""``--kafka-option``: which of the two Kafka clients gets which property."""

from __future__ import annotations

import pytest

from pipeline.errors import SettingsError
from pipeline.kafka.client_options import client_options
from pipeline.kafka.connector import connection
from pipeline.kafka.java_options import java_properties
from pipeline.settings import KafkaSettings

KAFKA = {
    "KAFKA_BOOTSTRAP_SERVER": "127.0.0.1:9092",
    "KAFKA_REQUEST_TOPIC": "requests",
    "KAFKA_ACK_TOPIC": "acks",
    "KAFKA_CONFIG_SECURITY_PROTOCOL": "sasl_ssl",
    "KAFKA_CONFIG_SASL_MECHANISM": "OAUTHBEARER",
}
IAM = [
    ("java.sasl.mechanism", "AWS_MSK_IAM"),
    ("java.sasl.client.callback.handler.class", "software.amazon.msk.auth.iam.IAMClientCallbackHandler"),
    ("java.sasl.jaas.config", "software.amazon.msk.auth.iam.IAMLoginModule required;"),
]


def test_a_property_goes_to_both_clients_or_to_the_named_one() -> None:
    given = [("client.rack", "a"), ("java.client.dns.lookup", "x"), ("librdkafka.security.protocol", "ssl")]
    kafka = KafkaSettings.load({**KAFKA, "KAFKA_CONFIG_SASL_MECHANISM": ""}).with_options(given)
    sent = kafka.client_properties()
    assert (sent["client.rack"], sent["security.protocol"], "client.dns.lookup" in sent) == ("a", "ssl", False)
    assert connection(kafka) == {
        "kafka.bootstrap.servers": "127.0.0.1:9092",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.client.rack": "a",
        "kafka.client.dns.lookup": "x",
    }


def test_javas_clients_may_have_another_listener() -> None:
    kafka = KafkaSettings.load(KAFKA).with_options([*IAM, ("java.bootstrap.servers", "127.0.0.1:9098")])
    assert connection(kafka)["kafka.bootstrap.servers"] == "127.0.0.1:9098"
    assert kafka.client_properties()["bootstrap.servers"] == "127.0.0.1:9092"


@pytest.mark.parametrize(
    ("name", "way_out"),
    [
        (
            "sasl.jaas.config",
            "is a property of Java clients: set KAFKA_CONFIG_SASL_USERNAME and .*java.sasl.jaas.config",
        ),
        (
            "ssl.truststore.type",
            "is a property of Java clients: .* KAFKA_CONFIG_SSL_CA_LOCATION; .*java.ssl.truststore",
        ),
        ("ssl.crl.location", "does not reach Spark's client: .*librdkafka.ssl.crl.location, and .* as java.NAME"),
        ("sasl.oauthbearer.config", "does not reach Spark's client"),
    ],
)
def test_a_property_that_secures_only_one_client_is_refused(name: str, way_out: str) -> None:
    with pytest.raises(SettingsError, match=f"--kafka-option {name} {way_out}"):
        client_options([(name, "secret")])


@pytest.mark.parametrize(
    "name", ["ssl.ca.location", "sasl.password", "ssl.keystore.location", "librdkafka.ssl.crl.pem"]
)
def test_a_property_that_secures_both_clients_or_a_named_one_is_accepted(name: str) -> None:
    client_options([(name, "x")])


def test_the_users_mechanism_gets_the_users_login_module() -> None:
    kafka = KafkaSettings.load(KAFKA).with_options(IAM)
    assert kafka.client_properties()["sasl.mechanism"] == "OAUTHBEARER", "librdkafka knows no other"
    found = java_properties(kafka.java_given(), kafka.java)
    assert found == {"security.protocol": "SASL_SSL", **{name.removeprefix("java."): value for name, value in IAM}}
    assert "IAMLoginModule" not in repr(kafka)


def test_the_error_for_a_mechanism_without_a_login_module_says_how_to_set_one() -> None:
    kafka = KafkaSettings.load(KAFKA).with_options(IAM[:1])
    with pytest.raises(SettingsError, match=r"AWS_MSK_IAM.*java\.sasl\.jaas\.config="):
        java_properties(kafka.java_given(), kafka.java)


@pytest.mark.parametrize("name", ["isolation.level", "java.isolation.level", "java.group.id", "transactional.id"])
def test_a_property_that_the_pipeline_sets_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"--kafka-option {name} cannot be set: "):
        client_options([(name, "x")])
