"""The version of the code in a run: git's tree hashes of the working tree, uncommitted changes included."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from chaos.procutil import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence


def tree_hash(folder: str, names: Sequence[str] = ("*",), without: Sequence[str] = ()) -> str:
    """Return the tree hash of a folder of the repository, of the files that match ``names`` and not ``without``.

    If all is committed, and with all files, it is that of ``HEAD:folder``. Raise RuntimeError outside of a git
    checkout, because a record without its engine is worthless.
    """
    with tempfile.TemporaryDirectory() as temporary:
        index = {"GIT_INDEX_FILE": str(Path(temporary, "index"))}
        left_out = [f":(exclude){folder}/{name}" for name in without]
        _git("add", "--all", "--", *(f"{folder}/{name}" for name in names), *left_out, more=index)
        return _git("write-tree", f"--prefix={folder}/", more=index)


def commit() -> str:
    """Return the commit that is checked out."""
    return _git("rev-parse", "HEAD")


def _git(*arguments: str, more: dict[str, str] | None = None) -> str:
    command = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, env={**os.environ, **(more or {})}, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"the record needs a git checkout: {' '.join(command)}: {done.stderr.strip()}")
    return done.stdout.strip()
