"""The cell between two processes: no interpreter lock keeps the reader from looking while the writer writes."""

from __future__ import annotations

import mmap
import subprocess
import sys
from typing import TYPE_CHECKING

from worker.process.cell import SIZE, Cell

if TYPE_CHECKING:
    from pathlib import Path

READS = 300_000
WRITER = """
import mmap, sys
from worker.process.cell import SIZE, Cell
with open(sys.argv[1], "r+b") as file:
    cell = Cell(mmap.mmap(file.fileno(), SIZE))
while True:
    cell.stamp(5, 20, 3, 77)
"""


def test_a_stamp_is_never_seen_half_written(tmp_path: Path) -> None:
    path = tmp_path / "cell"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file:
        cell = Cell(mmap.mmap(file.fileno(), SIZE))
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    try:
        while cell.read_stamp().turns == 0:
            assert writer.poll() is None
        seen = {cell.read_stamp()[1:] for _ in range(READS)}
    finally:
        writer.kill()
        writer.wait()
    assert seen == {(5, 20, 3, 77)}
