"""URIs of Hadoop's file systems and of databases. They begin with a scheme and a colon; Hadoop accepts ``file:/x``."""

from __future__ import annotations

import os
import re

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def scheme_of(text: str) -> str:
    """Return the scheme of a URI in lower case; an empty text for a path."""
    match = _SCHEME.match(text)
    return match[1].lower() if match else ""


def absolute(text: str) -> str:
    """Return a URI or path without its final slash. Paths become absolute: the JVM may run in another directory."""
    text = text.rstrip("/") or "/"
    return text if scheme_of(text) else os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - keeps links
