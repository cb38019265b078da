"""Options of kafka-python from librdkafka's properties: the same security, or an error."""

from __future__ import annotations

import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest

from worker.kafka.kafka_python import UnsupportedError, options

if TYPE_CHECKING:
    from pathlib import Path

REACH = {"bootstrap.servers": "a:1, SASL_SSL://b:2,[::1]:3", "client.id": "host-0"}


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a certificate and its key, which is encrypted with the password ``secret``."""
    folder = tmp_path_factory.mktemp("tls")
    made, key = folder / "certificate.pem", folder / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-days", "2", "-subj", "/CN=x"]
    subprocess.run([*command, "-passout", "pass:secret", "-keyout", key, "-out", made], check=True, capture_output=True)
    return made, key


def test_plaintext_properties_are_converted() -> None:
    assert options(REACH) == {
        "bootstrap_servers": ["a:1", "b:2", "[::1]:3"],
        "client_id": "host-0",
        "security_protocol": "PLAINTEXT",
    }


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
def test_a_user_name_and_a_password_are_converted(name: str) -> None:
    login = {"sasl.username": "me", "sasl.password": "tr0ub4dor", name: "SCRAM-SHA-256"}
    found = options(REACH | {"security.protocol": "sasl_plaintext"} | login)

    assert found["security_protocol"] == "SASL_PLAINTEXT"
    assert (found["sasl_mechanism"], found["sasl_plain_username"]) == ("SCRAM-SHA-256", "me")
    assert found["sasl_plain_password"] == "tr0ub4dor"


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}, "OAUTHBEARER"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "GSSAPI"),
        ({"security.protocol": "ssl", "ssl.keystore.location": "/x.p12"}, "ssl.keystore.location"),
    ],
)
def test_a_property_without_an_equivalent_is_an_error(given: dict[str, str], named: str) -> None:
    with pytest.raises(UnsupportedError, match=named):
        options(REACH | given)


def test_certificates_are_verified_unless_the_user_turns_it_off() -> None:
    secure = REACH | {"security.protocol": "ssl"}
    names_only = options(secure | {"ssl.endpoint.identification.algorithm": "none"})["ssl_context"]
    nothing = options(secure | {"enable.ssl.certificate.verification": "false"})["ssl_context"]
    everything = options(secure)["ssl_context"]

    assert (everything.verify_mode, everything.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert (names_only.verify_mode, names_only.check_hostname) == (ssl.CERT_REQUIRED, False)
    assert (nothing.verify_mode, nothing.check_hostname) == (ssl.CERT_NONE, False)


def test_authorities_come_from_a_file_a_folder_or_a_text(certificate: tuple[Path, Path]) -> None:
    """Only these authorities are trusted, not the system's."""
    made, _ = certificate
    secure = REACH | {"security.protocol": "ssl"}
    of_file = options(secure | {"ssl.ca.location": str(made)})["ssl_context"]
    of_text = options(secure | {"ssl.ca.pem": made.read_text()})["ssl_context"]
    of_folder = options(secure | {"ssl.ca.location": str(made.parent)})["ssl_context"]

    assert [len(context.get_ca_certs()) for context in (of_file, of_text, of_folder)] == [1, 1, 0]


@pytest.mark.parametrize("as_text", [False, True])
def test_the_clients_certificate_is_loaded(certificate: tuple[Path, Path], as_text: bool) -> None:
    """The key is loaded too, and its password decrypts it."""
    made, key = certificate
    given = {"ssl.certificate.location": str(made), "ssl.key.location": str(key)}
    if as_text:
        given = {"ssl.certificate.pem": made.read_text(), "ssl.key.pem": key.read_text()}
    secure = REACH | {"security.protocol": "ssl"} | given

    assert options(secure | {"ssl.key.password": "secret"})["ssl_context"]
    with pytest.raises(ssl.SSLError):
        options(secure | {"ssl.key.password": "wrong"})


def test_a_revocation_list_and_cipher_suites_are_applied(certificate: tuple[Path, Path]) -> None:
    made, _ = certificate
    secure = REACH | {"security.protocol": "ssl", "ssl.ca.location": str(made)}
    context = options(secure | {"ssl.crl.location": str(made), "ssl.cipher.suites": "ECDHE+AESGCM"})["ssl_context"]

    assert context.verify_flags & ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    assert not any("CHACHA" in cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2")
