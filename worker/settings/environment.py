"""Reads variables from the environment: follows ``*_FILE``, drops empty ones, and reports misspelt ones."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from worker.kafka.names import FILE_PROPERTIES, property_name
from worker.settings.masking import looks_secret
from worker.settings.misspelt import CONFIG, FILE, PREFIXES, has_prefix, meant_by

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

# Kubernetes adds these for every Service in the namespace.
_KUBERNETES = re.compile(r"_SERVICE_(HOST|PORT)(_|$)|_PORT_\d+_")


@dataclass(frozen=True, slots=True)
class Variable:
    """The text of a variable, and the file it was read from, if any. Its repr hides the text."""

    text: str = field(repr=False)
    file: str | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """The result of reading the environment."""

    variables: dict[str, Variable] = field(default_factory=dict)  # by name
    properties: dict[str, Variable] = field(default_factory=dict)  # KAFKA_CONFIG_*, by librdkafka's name
    unknown: list[str] = field(default_factory=list)  # other names with our prefixes
    problems: list[str] = field(default_factory=list)
    explained: set[str] = field(default_factory=set)  # missing variables that another problem already explains


def read(environ: Mapping[str, str], names: Collection[str]) -> Reading:
    """Read the variables ``names`` and ``KAFKA_CONFIG_*`` from an environment."""
    reading = Reading()
    for variable, text in sorted(environ.items()):
        # Compose files and shells set a variable to an empty text to unset it.
        if not text.strip() or not has_prefix(variable):
            continue
        if variable.startswith(CONFIG) and _is_kubernetes(variable, text):
            continue
        name, from_file = _target(variable, names)
        if name is None:
            _consider(reading, variable, environ, names)
        elif from_file:
            _add(reading, name, _follow(variable, text, reading.problems))
        else:
            _add(reading, name, Variable(text))
    return reading


def _is_kubernetes(variable: str, text: str) -> bool:
    return bool(_KUBERNETES.search(variable)) or text.startswith(("tcp://", "udp://", "sctp://"))


def _target(variable: str, names: Collection[str]) -> tuple[str | None, bool]:
    """Return the variable of ours that this one sets, and whether its value is a file path."""
    if variable in names:
        return variable, False
    stem = variable.removesuffix(FILE)
    if variable.startswith(CONFIG):
        # Three properties of librdkafka end in _FILE themselves; their value is the path.
        by_file = stem not in {variable, CONFIG.rstrip("_")} and property_name(_key(variable)) not in FILE_PROPERTIES
        return (stem if by_file else variable), by_file
    return (stem, True) if stem in names and stem != variable else (None, False)


def _key(variable: str) -> str:
    return variable.removeprefix(CONFIG)


def _add(reading: Reading, name: str, variable: Variable | None) -> None:
    is_property = name.startswith(CONFIG)
    found = reading.properties if is_property else reading.variables
    key = property_name(_key(name)) if is_property else name
    if key in found:
        reading.problems.append(f"{name} and {name}_FILE are both set: leave one of them out")
    elif variable is not None:
        found[key] = variable
    else:
        reading.explained.add(name)


def _follow(variable: str, path: str, problems: list[str]) -> Variable | None:
    """Return the content of the file without trailing newlines; None, with a problem, if it cannot be read."""
    # Without a slash this may be the secret itself, set by mistake, so do not show it.
    named = variable if "/" not in path and looks_secret(variable.removesuffix(FILE)) else f"{variable}={path!r}"
    try:
        text = Path(path).read_text(encoding="utf-8").rstrip("\r\n")
    except OSError as error:
        problems.append(f"{named} cannot be read: {error.strerror}")
    except UnicodeDecodeError:
        problems.append(f"{named} cannot be read: it is not UTF-8 text")
    else:
        if text.strip():
            return Variable(text, path)
        problems.append(f"{named} cannot be used: the file is empty")
    return None


def _consider(reading: Reading, variable: str, environ: Mapping[str, str], names: Collection[str]) -> None:
    """Report a name that is almost one of ours. Ignore other names."""
    if _is_kubernetes(variable, environ[variable]):
        return
    meant = meant_by(variable, environ, names)
    if meant is not None:
        reading.problems.append(f"{variable} is not known: is {meant} meant? Correct it, or unset it")
        reading.explained.add(meant.removesuffix(FILE))
    elif variable.startswith(PREFIXES):
        reading.unknown.append(variable)
