"""Modules of users, written by tests."""

from __future__ import annotations

import contextlib
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import pytest

    Write = Callable[..., str]


@contextlib.contextmanager
def writing_modules(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[Write]:
    """Yield a function that writes a module into the current directory, which is not on the path yet.

    The function takes the source and perhaps another name, and returns the name. The end removes imported modules.
    """
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)

    def write(source: str, name: str = name) -> str:
        (folder / f"{name}.py").write_text(source)
        return name

    yield write
    for one in set(sys.modules) - before:
        del sys.modules[one]
