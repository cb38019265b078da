"""The key by which a request, its answers and its dead letters are known: ``job/sequence``, ten digits."""

from __future__ import annotations

import re

LARGEST = 2**31 - 1  # of a sequence, which is an int32 in the messages
# Both for Python and for Arrow's RE2.
PATTERN = r"^(?P<job>[^/]+)/(?P<sequence>[0-9]{10})$"
_KEY = re.compile(PATTERN.replace("$", r"\Z"))


def key_of(job: str, sequence: int) -> str:
    """The key of a request. Sequences are not negative."""
    return f"{job}/{sequence:010d}"


def split_key(key: str) -> tuple[str, int] | None:
    """The job and the sequence that a key names, or None if it is no key of this form."""
    match = _KEY.match(key)
    if match is None or int(match["sequence"]) > LARGEST:
        return None
    return match["job"], int(match["sequence"])
