"""Certificates and keys as texts instead of files, because the executors' machines may not have the files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.errors import SettingsError

if TYPE_CHECKING:
    from collections.abc import Mapping

_AS_TEXT = {
    "ssl.ca.location": "ssl.ca.pem",
    "ssl.certificate.location": "ssl.certificate.pem",
    "ssl.key.location": "ssl.key.pem",
}
_SYSTEM = "probe"  # librdkafka's word for the system's authorities


def with_files_inlined(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same librdkafka properties with the contents of PEM files in place of their paths."""
    inlined = dict(properties)
    for name, as_text in _AS_TEXT.items():
        path = inlined.get(name)
        if path and path != _SYSTEM and Path(path).is_file():
            inlined[as_text] = _read(name, inlined.pop(name))
    return inlined


def _read(name: str, path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        variable = "KAFKA_CONFIG_" + name.upper().replace(".", "_")
        raise SettingsError(f"{variable}={path!r} cannot be read as PEM: {error}") from error
