"""A check that a test stays in the namespaces of its test process."""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

KINDS = ("net", "mnt")


@contextlib.contextmanager
def kept() -> Iterator[None]:
    """Fail if the code inside has moved this process to other namespaces.

    The process cannot return to its former ports and mounts, so all its later tests would find no broker.
    """
    before = _namespaces()
    try:
        yield
    finally:
        if _namespaces() != before:
            pytest.fail(f"it left the test process in other namespaces ({', '.join(KINDS)}): use a child process")


def _namespaces() -> list[str]:
    return [str(Path("/proc/self/ns", kind).readlink()) for kind in KINDS]
