"""``--kafka-option``: which of the two Kafka clients gets which property."""

from __future__ import annotations

import pytest

from pipeline.errors import SettingsError
from pipeline.kafka.client_options import client_options
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


def test_a_property_goes_to_both_clients_or_to_the_one_that_is_named() -> None:
    found = client_options([("client.rack", "a"), ("java.client.dns.lookup", "x"), ("librdkafka.debug", "broker")])
    assert found.librdkafka == {"client.rack": "a", "debug": "broker"}
    assert found.java == {"client.dns.lookup": "x"}
    assert java_properties(found.librdkafka, found.java) == {"client.rack": "a", "client.dns.lookup": "x"}


def test_what_only_java_clients_have_goes_to_these() -> None:
    assert client_options([("ssl.truststore.type", "JKS")]).java == {"ssl.truststore.type": "JKS"}


def test_a_mechanism_of_the_users_has_the_users_login_module() -> None:
    kafka = KafkaSettings.load(KAFKA).with_options(IAM)
    assert kafka.client_properties()["sasl.mechanism"] == "OAUTHBEARER", "librdkafka knows no other"
    found = java_properties(kafka.link().given, kafka.java)
    assert found == {"security.protocol": "SASL_SSL", **{name.removeprefix("java."): value for name, value in IAM}}
    assert "IAMLoginModule" not in repr(kafka)


def test_a_mechanism_without_its_login_module_is_an_error_that_says_how_to_give_one() -> None:
    kafka = KafkaSettings.load(KAFKA).with_options(IAM[:1])
    with pytest.raises(SettingsError, match=r"AWS_MSK_IAM.*java\.sasl\.jaas\.config="):
        java_properties(kafka.link().given, kafka.java)


@pytest.mark.parametrize("name", ["isolation.level", "java.isolation.level", "java.group.id", "transactional.id"])
def test_what_the_pipeline_sets_itself_is_refused(name: str) -> None:
    with pytest.raises(SettingsError, match=f"--kafka-option {name} cannot be set: "):
        client_options([(name, "x")])
