"""Wall clocks that jump: a preloaded library shifts those of a replica's processes (``clock.c``).

The libfaketime 0.9.10 of Debian 12 cannot do this: with it, ``time.sleep`` of Python 3.11 fails with EINVAL, because it
does not know absolute sleeps on the monotonic clock.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

JUMP = 10_800  # seconds, so far that shifted times can be recognized
_SOURCE = Path(__file__).with_name("clock.c")
_COMPILER = "cc"


def rights() -> frozenset[str]:
    """Return the rights that this machine gives (``chaos.faults.RIGHTS``)."""
    return frozenset({"clocks"} if shutil.which(_COMPILER) else ())


class Clocks:
    """The wall clocks of replicas, by name. Does nothing if the run has no such ``uses``."""

    def __init__(self, folder: Path, uses: Collection[str]) -> None:
        self._folder, self._library = folder, folder / "clock.so"
        self._names: set[str] = set()
        self._shift = "clocks" in uses and bool(rights())
        if self._shift:
            command = [_COMPILER, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(_SOURCE)]
            subprocess.run(command, check=True, capture_output=True)

    def environment(self, name: str) -> dict[str, str]:
        """Return the variables with which the replica of this name has a clock that can jump."""
        if not self._shift:
            return {}
        if name not in self._names:
            self._file(name).write_bytes(struct.pack("q", 0))
            self._names.add(name)
        return {"LD_PRELOAD": str(self._library), "CHAOS_CLOCK": str(self._file(name))}

    def set(self, name: str, seconds: int) -> None:
        """Let the clock of a replica differ from the true time, from now on."""
        with self._file(name).open("r+b") as file:
            file.write(struct.pack("q", seconds))

    def heal(self) -> None:
        """Set all clocks to the true time."""
        for name in self._names:
            self.set(name, 0)

    def _file(self, name: str) -> Path:
        return self._folder / f"clock-{name}"


def unshifted(stamp: float, near: float) -> float:
    """Return the true time of a stamp, in seconds, from a clock that was right or wrong by ``JUMP``.

    ``near`` is a time that differs from the true one by less than half of that.
    """
    return stamp - JUMP * round((stamp - near) / JUMP)
