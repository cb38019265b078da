"""A real Kafka broker with a second listener that requires TLS and a password: SASL_SSL, SCRAM-SHA-512."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from confluent_kafka import admin

from chaos.users import BROKER_PEM, make_certificate
from tests.kafka_broker import Broker
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_api: Any = admin  # its types are incomplete
USER, PASSWORD = "app", "tr0ub4dor"
_SECONDS = 30.0
_SETTINGS = r"""
listeners=PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SECURED://127.0.0.1:{secured}
controller.quorum.voters=1@127.0.0.1:{controller}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURED:SASL_SSL
sasl.enabled.mechanisms=SCRAM-SHA-512
listener.name.secured.scram-sha-512.sasl.jaas.config=\
org.apache.kafka.common.security.scram.ScramLoginModule required\u003b
listener.name.secured.ssl.keystore.type=PEM
listener.name.secured.ssl.keystore.location={pem}
"""


class SecuredBroker(Broker):
    """A broker whose ``bootstrap`` is the plain listener, for the clients of the tests."""

    def __init__(self, folder: Path, properties: str = "") -> None:
        port, secured, controller = free_port(), free_port(), free_port()
        settings = _SETTINGS.format(port=port, secured=secured, controller=controller, pem=folder / BROKER_PEM)
        super().__init__(port, folder / "broker", settings + properties)
        self.secured_bootstrap = f"127.0.0.1:{secured}"
        self._certificate = make_certificate(folder)

    def client(self) -> dict[str, str]:
        """Return the properties of a client of the secured listener."""
        return {
            "security.protocol": "sasl_ssl",
            "ssl.ca.location": str(self._certificate),
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": USER,
            "sasl.password": PASSWORD,
        }

    def add_user(self) -> None:
        """Add the user and its password to the broker."""
        client = _api.AdminClient({"bootstrap.servers": self.bootstrap})
        scram = _api.ScramCredentialInfo(_api.ScramMechanism.SCRAM_SHA_512, 4096)
        wanted = _api.UserScramCredentialUpsertion(USER, scram, PASSWORD.encode())
        client.alter_user_scram_credentials([wanted])[USER].result(_SECONDS)


@contextlib.contextmanager
def secured_broker(folder: Path, properties: str = "") -> Iterator[SecuredBroker]:
    """Yield a broker, and remove it at the end. ``properties`` are further lines of its settings."""
    broker = SecuredBroker(folder, properties)
    try:
        broker.script("up")
        broker.add_user()
        yield broker
    finally:
        broker.script("down", "--purge")
