"""Translation of librdkafka's properties to those of Kafka's Java clients in Spark. Pure, but it reads PEM files.

The user sets ``KAFKA_CONFIG_*`` once, with librdkafka's names. Only the properties of the connection are translated.
"""

from __future__ import annotations

from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

from pipeline.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_SAME = {
    "security.protocol": "security.protocol",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.kerberos.service.name": "sasl.kerberos.service.name",
    "sasl.oauthbearer.token.endpoint.url": "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.scope": "sasl.oauthbearer.scope",
    "ssl.key.password": "ssl.key.password",
    "ssl.cipher.suites": "ssl.cipher.suites",
    "client.rack": "client.rack",
}
# The names that ``java_properties`` understands.
TRANSLATED = frozenset(_SAME) | {
    "enable.ssl.certificate.verification",
    "ssl.endpoint.identification.algorithm",
    "ssl.ca.location",
    "ssl.ca.pem",
    "ssl.certificate.location",
    "ssl.certificate.pem",
    "ssl.key.location",
    "ssl.key.pem",
    "ssl.keystore.location",
    "ssl.keystore.password",
    "sasl.username",
    "sasl.password",
    "sasl.kerberos.keytab",
    "sasl.kerberos.principal",
    "sasl.oauthbearer.method",  # oidc, as in Java's handler
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
    "sasl.oauthbearer.client.credentials.client.id",
    "sasl.oauthbearer.client.credentials.client.secret",
}
_LOGIN = "org.apache.kafka.common.security"
_OIDC = f"{_LOGIN}.oauthbearer.secured.OAuthBearerLoginCallbackHandler"
_MODULES = {
    "PLAIN": f"{_LOGIN}.plain.PlainLoginModule",
    "SCRAM-SHA-256": f"{_LOGIN}.scram.ScramLoginModule",
    "SCRAM-SHA-512": f"{_LOGIN}.scram.ScramLoginModule",
    "OAUTHBEARER": f"{_LOGIN}.oauthbearer.OAuthBearerLoginModule",
    "GSSAPI": "com.sun.security.auth.module.Krb5LoginModule",
}
_IDENTIFICATION = "ssl.endpoint.identification.algorithm"


def java_properties(given: Mapping[str, str], options: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Return the names and values for the Java clients. Raise SettingsError for a property without an equivalent.

    ``options`` are Java properties that the user gave. If ``sasl.jaas.config`` is among them, the user's login module
    is used as it is, for any mechanism.
    """
    if given.get("enable.ssl.certificate.verification", "true").lower() in {"false", "f", "0"}:
        raise SettingsError(
            "KAFKA_CONFIG_ENABLE_SSL_CERTIFICATE_VERIFICATION=false does not work with Spark: "
            "set KAFKA_CONFIG_SSL_CA_LOCATION to the brokers' certificate authority instead"
        )
    found = {java: given[name] for name, java in _SAME.items() if name in given}
    found |= dict(_trust(given)) | dict(_identity(given))
    if "sasl.jaas.config" not in options:
        found |= dict(_login(given, options.get("sasl.mechanism", found.get("sasl.mechanism"))))
    if _IDENTIFICATION in given:
        found[_IDENTIFICATION] = given[_IDENTIFICATION].replace("none", "")
    if "security.protocol" in found:
        found["security.protocol"] = found["security.protocol"].upper()
    return found | dict(options)


def _trust(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    # As texts instead of paths, because the executors' machines may not have the files.
    pem = given.get("ssl.ca.pem") or _content(given, "ssl.ca.location")
    if pem:
        yield "ssl.truststore.type", "PEM"
        yield "ssl.truststore.certificates", pem


def _identity(given: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    if "ssl.keystore.location" in given:
        yield "ssl.keystore.type", "PKCS12"
        yield "ssl.keystore.location", given["ssl.keystore.location"]
        yield "ssl.keystore.password", given.get("ssl.keystore.password", "")
        return
    chain = given.get("ssl.certificate.pem") or _content(given, "ssl.certificate.location")
    key = given.get("ssl.key.pem") or _content(given, "ssl.key.location")
    if chain and key:
        yield "ssl.keystore.type", "PEM"
        yield "ssl.keystore.certificate.chain", chain
        yield "ssl.keystore.key", key


def _content(given: Mapping[str, str], name: str) -> str | None:
    path = given.get(name)
    if path is None or path == "probe":  # librdkafka's word for the system's authorities, which Java uses by default
        return None
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        variable = "KAFKA_CONFIG_" + name.upper().replace(".", "_")
        raise SettingsError(f"{variable}={path!r} cannot be read as PEM: {error}") from error


def _login(given: Mapping[str, str], mechanism: str | None) -> Iterator[tuple[str, str]]:
    if mechanism is None:
        return
    if mechanism not in _MODULES:
        raise SettingsError(
            f"KAFKA_CONFIG_SASL_MECHANISM={mechanism!r} must be one of {', '.join(_MODULES)}; "
            "for another one, set its login module with PIPELINE_KAFKA_OPTION: java.sasl.jaas.config=…"
        )
    options = " ".join(f"{name}={_quoted(value)}" for name, value in _credentials(given, mechanism).items())
    yield "sasl.jaas.config", f"{_MODULES[mechanism]} required {options};"
    if mechanism == "OAUTHBEARER":
        yield "sasl.login.callback.handler.class", _OIDC


def _credentials(given: Mapping[str, str], mechanism: str) -> dict[str, str]:
    if mechanism == "GSSAPI":
        keytab = {"useKeyTab": "true", "storeKey": "true", "keyTab": given.get("sasl.kerberos.keytab", "")}
        return {**keytab, "principal": given.get("sasl.kerberos.principal", "")}
    if mechanism == "OAUTHBEARER":
        named = {"clientId": "client.id", "clientSecret": "client.secret"}
        return {
            java: given.get(f"sasl.oauthbearer.{name}") or given.get(f"sasl.oauthbearer.client.credentials.{name}", "")
            for java, name in named.items()
        } | ({"scope": given["sasl.oauthbearer.scope"]} if "sasl.oauthbearer.scope" in given else {})
    return {"username": given.get("sasl.username", ""), "password": given.get("sasl.password", "")}


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
