"""Converts librdkafka's properties to options of kafka-python, for the same brokers with the same security.

librdkafka cannot leave a group in the name of another member. kafka-python can, and it is pure Python.
"""

from __future__ import annotations

import os
import ssl
import tempfile
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping

_FALSE = {"false", "f", "0", "off"}  # as librdkafka reads a boolean
_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}
# If Python's ssl does not support the same settings, no connection is made, because a weaker one is not acceptable.
_UNSUPPORTED = {
    *("ssl.keystore.location", "ssl.engine.location", "ssl.engine.id", "ssl.providers"),
    *("ssl.curves.list", "ssl.sigalgs.list"),
}


class UnsupportedError(Exception):
    """kafka-python cannot connect with these properties. The text names the property."""


def options(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that connect to the brokers with the same encryption and authentication.

    Raise UnsupportedError, or OSError or ssl.SSLError for certificates that cannot be read.
    """
    protocol = str(properties.get("security.protocol", "plaintext")).upper()
    found: dict[str, Any] = {
        "bootstrap_servers": [server.rpartition("://")[2].strip() for server in _servers(properties)],
        "client_id": properties.get("client.id", "worker"),
        "security_protocol": protocol,
    }
    if protocol.startswith("SASL_"):
        found |= _login(properties)
    if protocol.endswith("SSL"):
        found["ssl_context"] = _tls(properties)
    return found


def _servers(properties: Mapping[str, Any]) -> list[str]:
    return str(properties["bootstrap.servers"]).split(",")


def _login(properties: Mapping[str, Any]) -> dict[str, Any]:
    mechanism = properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI"
    if mechanism not in _MECHANISMS:
        raise UnsupportedError(f"kafka-python is not set up for sasl.mechanism {mechanism}")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": properties.get("sasl.username"),
        "sasl_plain_password": properties.get("sasl.password"),
    }


def _tls(properties: Mapping[str, Any]) -> ssl.SSLContext:
    unsupported = _UNSUPPORTED & properties.keys()
    if unsupported:
        raise UnsupportedError(f"Python's ssl cannot do {', '.join(sorted(unsupported))}")
    context = _trust(properties)
    if _is_off(properties, "enable.ssl.certificate.verification"):
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif str(properties.get("ssl.endpoint.identification.algorithm", "https")).lower() == "none":
        context.check_hostname = False
    if "ssl.cipher.suites" in properties:
        context.set_ciphers(properties["ssl.cipher.suites"])
    _identify(context, properties)
    return context


def _trust(properties: Mapping[str, Any]) -> ssl.SSLContext:
    """Return a context that trusts the given authorities, or the system's if none are given."""
    place, text = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
    if place in (None, "probe"):
        context = ssl.create_default_context(cadata=text)
    elif os.path.isdir(place):  # noqa: PTH112 - a text from the environment, looked at once
        context = ssl.create_default_context(capath=place)
    else:
        context = ssl.create_default_context(cafile=place)
    if "ssl.crl.location" in properties:
        context.load_verify_locations(properties["ssl.crl.location"])
        context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
    return context


def _identify(context: ssl.SSLContext, properties: Mapping[str, Any]) -> None:
    """Load the client's certificate, if it has one, from files or texts."""
    password = properties.get("ssl.key.password")
    if "ssl.certificate.location" in properties:
        context.load_cert_chain(
            properties["ssl.certificate.location"], properties.get("ssl.key.location"), lambda: password or ""
        )
    elif "ssl.certificate.pem" in properties:
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as file:  # load_cert_chain reads only files
            file.write(f"{properties['ssl.certificate.pem']}\n{properties.get('ssl.key.pem', '')}\n")
            file.flush()
            context.load_cert_chain(file.name, None, lambda: password or "")


def _is_off(properties: Mapping[str, Any], name: str) -> bool:
    return str(properties.get(name, "true")).lower() in _FALSE
