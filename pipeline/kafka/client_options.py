"""Properties that the user gives to the pipeline's two Kafka clients: librdkafka, and the Java client in Spark. Pure.

``NAME`` is librdkafka's name and is translated for Java as ``KAFKA_CONFIG_*`` are. ``java.NAME`` and
``librdkafka.NAME`` are for one client only. A name that only Java's clients have goes to these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import SettingsError
from worker.kafka.names import JAVA, OWNED
from worker.kafka.properties import refusals

if TYPE_CHECKING:
    from collections.abc import Iterable

_JAVA, _LIBRDKAFKA = "java.", "librdkafka."


class ClientOptions(NamedTuple):
    """Properties by name: those of librdkafka, shared ones included, and those of Java's clients only."""

    librdkafka: dict[str, str]
    java: dict[str, str]


def client_options(pairs: Iterable[tuple[str, str]]) -> ClientOptions:
    """Return the properties by client. Raise SettingsError with a line for each that the pipeline itself sets."""
    found = ClientOptions({}, {})
    for name, value in pairs:
        if name.startswith(_JAVA) or name in JAVA:
            found.java[name.removeprefix(_JAVA)] = value
        else:
            found.librdkafka[name.removeprefix(_LIBRDKAFKA)] = value
    refused = [f"{name} {reason}" for name, reason in refusals(found.librdkafka).items()]
    refused += [f"java.{name} cannot be set: {OWNED[name]}" for name in sorted(found.java.keys() & OWNED.keys())]
    if refused:
        raise SettingsError("\n".join(f"--kafka-option {line}" for line in refused))
    return found
