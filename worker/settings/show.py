"""Formats settings: values without secrets, and validation errors as one line each."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from pydantic import SecretStr, ValidationError

from worker.kafka.names import variable_name
from worker.kafka.properties import refusals
from worker.settings.masking import MASK, hide, looks_secret
from worker.settings.misspelt import nearest
from worker.settings.values import Backoff, show_duration

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pydantic_core import ErrorDetails

    from worker.settings.environment import Reading, Variable

_ALIKE = 0.6  # similarity at which an unknown name is mentioned with a missing one
_SWITCH = ("off", "on")
_LONGEST = 80  # characters of a wrong value that are shown
# It may contain secrets anywhere, and text that is not JSON cannot be searched for them.
_NEVER_QUOTED = frozenset({"WORKER_HANDLER_KWARGS"})


def shown(name: str, value: Any, file: str | None = None) -> str:
    """Return the value of a variable or property without secrets. Durations have a unit."""
    if file is not None:
        return f"{MASK} (from {file})"
    return MASK if looks_secret(name) else _text(value)


def _text(value: Any) -> str:
    match value:
        case SecretStr():
            return MASK
        case Backoff():
            return f"{show_duration(value.first)}..{show_duration(value.greatest)}"
        case bool() | float():
            return _SWITCH[value] if isinstance(value, bool) else show_duration(value)
        case tuple():
            return ",".join(value) or "none"
        case dict():
            return json.dumps(hide(value), ensure_ascii=False)
        case _:
            return str(hide(value))


def problems_of(error: ValidationError, reading: Reading, meanings: Mapping[str, str]) -> list[str]:
    """Return pydantic's errors, each as a line with the variable, its value and what it must be."""
    details = error.errors(include_url=False, include_input=False)
    return [_problem(each, reading, meanings) for each in details if not _follows(each, reading)]


def _follows(error: ErrorDetails, reading: Reading) -> bool:
    """Return whether another problem causes this one: a wrong value, an unreadable file or a misspelt name."""
    absent = error["type"] == "missing" and error["loc"][0] in reading.explained
    return absent or error["type"] == "default_factory_not_called"


def _problem(error: ErrorDetails, reading: Reading, meanings: Mapping[str, str]) -> str:
    name = str(error["loc"][0])
    if error["type"] == "missing":
        similar = nearest(name, reading.unknown, cutoff=_ALIKE)
        hint = f" ({similar} is set: is this one meant?)" if similar else ""
        return f"{name} is not set: {meanings[name]}{hint}"
    context = error.get("ctx", {})
    should = f"must be {context['expected']}" if error["type"] == "literal_error" else str(context["error"])
    return f"{quoted(name, reading.variables.get(name))} {should}"


def quoted(name: str, variable: Variable | None) -> str:
    """Return ``NAME='text'``, without the text if that may be secret."""
    if variable is None:
        return name
    if variable.file is not None:
        return f"{name} (from {variable.file})"
    if name in _NEVER_QUOTED or looks_secret(name):
        return name
    text = variable.text if len(variable.text) <= _LONGEST else f"{variable.text[:_LONGEST]}…"
    return f"{name}={text!r}"


def refused(properties: Mapping[str, Variable]) -> list[str]:
    """Return a line for each ``KAFKA_CONFIG_*`` that cannot be set."""
    reasons = refusals({name: variable.text for name, variable in properties.items()})
    return [f"{quoted(variable_name(name), properties[name])} {reason}" for name, reason in reasons.items()]
