"""Checks that librdkafka accepts the properties, by creating clients without a broker.

These clients cost threads. So this is for a process that is about to end, such as preflight's, and never for the
supervisor, which must not create clients.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeVar

import confluent_kafka as ck

from worker.errors import SettingsError
from worker.kafka.clients import quiet
from worker.kafka.names import ALIASES, variable_name

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping

    from worker.kafka.facts import Target

C = TypeVar("C")
_PROPERTY = re.compile(r"\b[a-z]+(?:\.[a-z]+)+\b|\blog_level\b")


def check(target: Target) -> None:
    """Raise a SettingsError with one line for each property that librdkafka rejects."""
    found = dict.fromkeys(_objections(target))  # several clients may reject the same property
    if found:
        raise SettingsError("\n".join(found))


def _objections(target: Target) -> Iterator[str]:
    for properties in target.consumers.values():
        yield from _try(lambda conf: ck.Consumer(conf).close(), properties)
    yield from _try(ck.Producer, target.producer)


def _try(make: Callable[[dict[str, Any]], object], properties: dict[str, Any]) -> Iterator[str]:
    # Without an address there is no connection.
    offline = {name: value for name, value in properties.items() if name != "bootstrap.servers"}
    try:
        made(make, quiet(offline, lambda _: None))
    except SettingsError as error:
        yield str(error)


def made(kind: Callable[[dict[str, Any]], C], properties: Mapping[str, Any]) -> C:
    """Create a client. Raise SettingsError if librdkafka rejects a property."""
    try:
        return kind(dict(properties))
    except ck.KafkaException as error:
        raise SettingsError(objection(error, properties)) from None


def objection(error: ck.KafkaException, properties: Container[str]) -> str:
    """Return why no client could be created, in one line that begins with the variable."""
    text = re.sub(r"^Failed to create (consumer|producer): ", "", " ".join(error.args[0].str().split()))
    if "SASL mechanism" in text:
        what, _, _ = text.partition(":")
        return f"KAFKA_CONFIG_SASL_MECHANISM: {what}; set PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 or OAUTHBEARER"
    mentioned = _PROPERTY.search(text)
    if mentioned is None:
        return f"KAFKA_CONFIG_*: {text}"
    name = mentioned[0] if mentioned[0] in properties else ALIASES.get(mentioned[0], mentioned[0])
    return f"{variable_name(name)}: {text}"
