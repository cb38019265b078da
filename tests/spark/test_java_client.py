"""The properties with which Spark's connector reaches the brokers, made from the user's settings for librdkafka."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pipeline.errors import SettingsError
from pipeline.kafka.java_options import java_properties
from pipeline.kafka.tls import with_files_inlined

if TYPE_CHECKING:
    from pathlib import Path


def test_no_property_is_set_without_settings_for_the_connection() -> None:
    assert java_properties({}) == {}
    assert java_properties({"linger.ms": "5", "fetch.min.bytes": "1"}) == {}


@pytest.mark.parametrize(
    ("mechanism", "module"),
    [
        ("PLAIN", "org.apache.kafka.common.security.plain.PlainLoginModule"),
        ("SCRAM-SHA-512", "org.apache.kafka.common.security.scram.ScramLoginModule"),
    ],
)
def test_a_password_becomes_a_login_module(mechanism: str, module: str) -> None:
    given = {
        "security.protocol": "sasl_ssl",
        "sasl.mechanisms": mechanism,
        "sasl.username": "me",
        "sasl.password": 'a"\\b',
    }
    found = java_properties(given)
    assert found["security.protocol"] == "SASL_SSL"
    assert found["sasl.mechanism"] == mechanism
    assert found["sasl.jaas.config"] == f'{module} required username="me" password="a\\"\\\\b";'


def test_certificate_files_become_texts(tmp_path: Path) -> None:
    for name in ("ca", "chain", "key"):
        (tmp_path / name).write_text(f"-----{name}-----")
    given = {"ssl.ca.location": "ca", "ssl.certificate.location": "chain", "ssl.key.location": "key"}
    found = java_properties({name: str(tmp_path / file) for name, file in given.items()} | {"ssl.key.password": "pw"})
    assert found == {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "-----ca-----",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "-----chain-----",
        "ssl.keystore.key": "-----key-----",
        "ssl.key.password": "pw",
    }


def test_a_setting_without_a_java_counterpart_is_refused() -> None:
    for given in (
        {"enable.ssl.certificate.verification": "false"},
        {"sasl.mechanism": "MAGIC"},
        {"ssl.ca.location": "/no/such/file"},
    ):
        with pytest.raises(SettingsError, match=r"KAFKA_CONFIG_"):
            java_properties(given)


def test_the_user_can_turn_off_the_check_of_host_names() -> None:
    name = "ssl.endpoint.identification.algorithm"
    assert java_properties({name: "none"}) == {name: ""}


def test_oauth_settings_become_a_client_and_a_callback_handler() -> None:
    given = {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": "s",
        "sasl.oauthbearer.token.endpoint.url": "https://login.example",
    }
    found = java_properties(given)
    assert 'clientId="me" clientSecret="s"' in found["sasl.jaas.config"]
    assert found["sasl.login.callback.handler.class"].endswith("OAuthBearerLoginCallbackHandler")
    assert found["sasl.oauthbearer.token.endpoint.url"] == "https://login.example"


def test_clients_of_executors_get_certificates_as_texts(tmp_path: Path) -> None:
    """librdkafka accepts files and texts. An executor could not read a file that only the driver has."""
    (tmp_path / "ca.pem").write_text("CA")
    given = {"ssl.ca.location": str(tmp_path / "ca.pem"), "ssl.key.password": "x", "ssl.certificate.location": "probe"}
    found = with_files_inlined(given)
    assert found == {"ssl.ca.pem": "CA", "ssl.key.password": "x", "ssl.certificate.location": "probe"}
    assert with_files_inlined({"ssl.ca.location": str(tmp_path)}) == {"ssl.ca.location": str(tmp_path)}  # a folder
    (tmp_path / "ca.pem").write_bytes(b"\xff")
    with pytest.raises(SettingsError, match=r"KAFKA_CONFIG_SSL_CA_LOCATION=.* cannot be read as PEM"):
        with_files_inlined(given)
