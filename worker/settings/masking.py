"""Hides secrets, by the names of settings and JSON keys, and hides passwords in URLs."""

from __future__ import annotations

import re
from typing import Any

MASK = "***"
# Anywhere in a name, even inside a word (dbpassword).
_PARTS = ("password", "passwd", "passphrase", "secret", "token", "jaas", "credential", "apikey")
# Only as a whole word: ``key``, but not ``keytab`` or ``monkey``.
_WORDS = frozenset({"key", "keys", "pass", "pwd", "pem", "private", "auth", "authorization", "dsn"})
# The last word of names that mention a secret but contain only its location or owner.
_HARMLESS_ENDINGS = frozenset({"location", "file", "path", "url", "id", "name", "algorithm", "method"})
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_URL_PASSWORD = re.compile(r"(\w://[^/\s:@]*):[^\s@]+@")


def looks_secret(name: str) -> bool:
    """Return whether to hide the value of this name. ``ssl.key.pem``: yes; ``ssl.key.location``: no."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words or words[-1] in _HARMLESS_ENDINGS:
        return False
    if name == "sasl.oauthbearer.config":  # may contain the client secret
        return True
    return not _WORDS.isdisjoint(words) or any(part in name.lower() for part in _PARTS)


def hide(value: Any, name: str = "") -> Any:
    """Return the value with every secret masked: by the keys of objects, and passwords in URLs."""
    if looks_secret(name):
        return MASK
    if isinstance(value, dict):
        return {key: hide(entry, str(key)) for key, entry in value.items()}
    if isinstance(value, list):
        return [hide(entry) for entry in value]
    if isinstance(value, str):
        return _URL_PASSWORD.sub(rf"\1:{MASK}@", value)
    return value
