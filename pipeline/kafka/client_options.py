"""Properties that the user gives to the pipeline's two Kafka clients: librdkafka, and the Java client in Spark. Pure.

``NAME`` is librdkafka's name and is translated for Java as ``KAFKA_CONFIG_*`` are. ``java.NAME`` and
``librdkafka.NAME`` are for one client only. Without a prefix, a name that would secure only one client is refused.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from pipeline.errors import SettingsError
from pipeline.kafka.java_options import TRANSLATED
from worker.kafka.names import JAVA, OWNED
from worker.kafka.properties import refusals

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_JAVA, _LIBRDKAFKA = "java.", "librdkafka."
_SECURITY = ("ssl.", "sasl.", "enable.sasl.", "https.")  # how the names of properties that secure a connection begin
_OTHER_LISTENER = {"bootstrap.servers"}  # Java's clients may need a listener with another mechanism


class ClientOptions(NamedTuple):
    """Properties by name: those of both clients, of librdkafka only, and of Java's clients only."""

    shared: dict[str, str]
    librdkafka: dict[str, str]
    java: dict[str, str]


def client_options(pairs: Iterable[tuple[str, str]]) -> ClientOptions:
    """Return the properties by client. Raise SettingsError with a line for each that cannot be used."""
    found = ClientOptions({}, {}, {})
    for name, value in pairs:
        if name.startswith(_JAVA):
            found.java[name.removeprefix(_JAVA)] = value
        elif name.startswith(_LIBRDKAFKA):
            found.librdkafka[name.removeprefix(_LIBRDKAFKA)] = value
        else:
            found.shared[name] = value
    refused = list(_refused(found))
    if refused:
        raise SettingsError("\n".join(f"--kafka-option {line}" for line in refused))
    return found


def _refused(found: ClientOptions) -> Iterator[str]:
    for name, reason in refusals(found.shared).items():
        yield f"{name} {reason}" + (f"; or set java.{name} for Spark's client only" if name in JAVA else "")
    for name, reason in refusals(found.librdkafka).items():
        yield f"{_LIBRDKAFKA}{name} {reason}"
    for name in sorted(found.java.keys() & OWNED.keys() - _OTHER_LISTENER):
        yield f"{_JAVA}{name} cannot be set: {OWNED[name]}"
    for name in sorted(found.shared.keys() - TRANSLATED - JAVA.keys()):
        if name.startswith(_SECURITY):
            yield f"{name} does not reach Spark's client: set librdkafka.{name}, and its equivalent as java.NAME"
