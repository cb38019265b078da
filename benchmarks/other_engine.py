"""The worker of another commit, for a comparison with that of this checkout."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, Self

from benchmarks.broker import ROOT

if TYPE_CHECKING:
    from collections.abc import Sequence

_HANDLERS = "benchmarks/handlers.py"


class OtherEngine(NamedTuple):
    """Another engine. ``commit`` is a short hash. ``folder`` has its ``worker`` package and our handlers."""

    commit: str
    folder: Path

    @classmethod
    def extract(cls, revision: str) -> Self:
        """Unpack the worker of that revision into a temporary folder. Raise ValueError if git does not know it."""
        commit = _git("rev-parse", "--short", "--verify", f"{revision}^{{commit}}").decode().strip()
        folder = Path(tempfile.mkdtemp(prefix="bench-engine-"))
        # Not with tarfile: before Python 3.11.4 its extractall has no filter, and from 3.12 on it warns without one.
        archive = _git("archive", commit, "worker")
        subprocess.run(["/usr/bin/env", "tar", "--extract", "--directory", str(folder)], input=archive, check=True)
        # Both engines run the same tasks.
        (folder / _HANDLERS).parent.mkdir()
        shutil.copy(ROOT / _HANDLERS, folder / _HANDLERS)
        return cls(commit, folder)

    @property
    def name(self) -> str:
        """Return its name as a program."""
        return f"worker at {self.commit}"

    @property
    def settings(self) -> dict[str, str]:
        """Return the variables that run it instead of the worker of this checkout."""
        return {"PYTHONPATH": str(self.folder)}

    def remove(self) -> None:
        """Delete the folder."""
        shutil.rmtree(self.folder)


def _git(*arguments: str) -> bytes:
    command: Sequence[str] = ["git", "-C", str(ROOT), *arguments]
    done = subprocess.run(command, capture_output=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.decode(errors="replace").strip())
    return done.stdout
