"""Users of secured listeners: TLS, a password (SCRAM), and only the permissions that the manual lists."""

from __future__ import annotations

import secrets
import subprocess
from typing import TYPE_CHECKING, Any, NamedTuple

from confluent_kafka import admin

from chaos import features
from chaos.groups import SECONDS, administrator

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from chaos.options import Options
    from chaos.topics import Topics

MECHANISM = "SCRAM-SHA-512"
BROKER_PEM = "broker.pem"  # the file with a broker's certificate and its key
_ITERATIONS = 4096
_CLUSTER = "kafka-cluster"
_api: Any = admin  # its types are incomplete


class Permission(NamedTuple):
    """A row of the table in docs/how-to/kubernetes.md: what is allowed on the resource of a kind and name."""

    kind: str  # of ``admin.ResourceType``
    name: str
    operations: tuple[str, ...]  # of ``admin.AclOperation``
    prefixed: bool = False


def permissions(topics: Topics, group: str, options: Options) -> Sequence[Permission]:
    """Return what the worker needs in such a run, and nothing else."""
    found = [
        Permission("TOPIC", topics.requests, ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")),
        Permission("TOPIC", topics.answers, ("WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")),
        Permission("TOPIC", topics.dead_letters, ("WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")),
        Permission("GROUP", group, ("READ", "DESCRIBE")),
    ]
    if "follow-ups" in options.uses:
        found.append(Permission("TOPIC", topics.requests, ("WRITE",)))
    if options.guarantee == "exactly-once":
        found.append(Permission("TRANSACTIONAL_ID", f"{group}-", ("WRITE", "DESCRIBE"), prefixed=True))
    if features.use_states(options.uses):
        found += [
            Permission("TOPIC", topics.states, ("READ", "WRITE", "DESCRIBE", "DESCRIBE_CONFIGS")),
            Permission("BROKER", _CLUSTER, ("DESCRIBE_CONFIGS",)),
            Permission("GROUP", f"{group}.detached.", ("READ", "DESCRIBE", "DELETE"), prefixed=True),
        ]
    return found


class Users:
    """The users of a run. Replicas that start from now on connect as the newest.

    ``bootstrap`` is a listener without TLS, whose clients may do everything. ``certificate`` is what the secured
    listeners show.
    """

    def __init__(self, bootstrap: str, certificate: Path, allowed: Sequence[Permission]) -> None:
        self._bootstrap, self._certificate, self._allowed = bootstrap, certificate, allowed
        self._passwords: dict[str, str] = {}  # of the users that exist, the newest last
        self._made = 0

    @property
    def newest(self) -> str:
        """Return the name of the newest user."""
        return list(self._passwords)[-1]

    def environment(self) -> dict[str, str]:
        """Return the settings of a replica that connects as the newest user."""
        return {
            "KAFKA_CONFIG_SECURITY_PROTOCOL": "SASL_SSL",
            "KAFKA_CONFIG_SSL_CA_LOCATION": str(self._certificate),
            "KAFKA_CONFIG_SASL_MECHANISM": MECHANISM,
            "KAFKA_CONFIG_SASL_USERNAME": self.newest,
            "KAFKA_CONFIG_SASL_PASSWORD": self._passwords[self.newest],
        }

    def add(self) -> None:
        """Create a user with another password. Raise KafkaException if the brokers are not able to."""
        self._made += 1
        name, password = f"worker-{self._made}", secrets.token_urlsafe(12)
        scram = _api.ScramCredentialInfo(_api.ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        with administrator(self._bootstrap) as client:
            wanted = _api.UserScramCredentialUpsertion(name, scram, password.encode())
            client.alter_user_scram_credentials([wanted])[name].result(SECONDS)
            for future in client.create_acls([acl for one in self._allowed for acl in _acls(name, one)]).values():
                future.result(SECONDS)
        self._passwords[name] = password

    def delete(self, used: Collection[str]) -> None:
        """Delete all users but the newest and those that are ``used``. Raise KafkaException."""
        for name in self._passwords.keys() - {self.newest, *used}:
            gone = _api.UserScramCredentialDeletion(name, _api.ScramMechanism.SCRAM_SHA_512)
            with administrator(self._bootstrap) as client:
                client.alter_user_scram_credentials([gone])[name].result(SECONDS)
            del self._passwords[name]


def _acls(user: str, allowed: Permission) -> list[Any]:
    kind = getattr(_api.ResourceType, allowed.kind)
    pattern = _api.ResourcePatternType.PREFIXED if allowed.prefixed else _api.ResourcePatternType.LITERAL
    allow = _api.AclPermissionType.ALLOW
    return [
        _api.AclBinding(kind, allowed.name, pattern, f"User:{user}", "*", getattr(_api.AclOperation, operation), allow)
        for operation in allowed.operations
    ]


def make_certificate(folder: Path) -> Path:
    """Make a certificate for 127.0.0.1 that is its own authority, and beside it ``BROKER_PEM``."""
    key, certificate = folder / "key.pem", folder / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=127.0.0.1"]
    subject = ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run([*command, *subject], check=True, capture_output=True)
    (folder / BROKER_PEM).write_text(key.read_text() + certificate.read_text())
    return certificate
