"""The status block between two processes. No interpreter lock prevents a read during a write."""

from __future__ import annotations

import mmap
import subprocess
import sys
from typing import TYPE_CHECKING

from worker.process.status_block import SIZE, StatusBlock

if TYPE_CHECKING:
    from pathlib import Path

READS = 300_000
WRITER = """
import mmap, sys
from worker.process.status_block import SIZE, StatusBlock
with open(sys.argv[1], "r+b") as file:
    status_block = StatusBlock(mmap.mmap(file.fileno(), SIZE))
while True:
    status_block.stamp(5, 20, 3, 77)
"""


def test_a_stamp_is_never_seen_half_written(tmp_path: Path) -> None:
    path = tmp_path / "block"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file:
        status_block = StatusBlock(mmap.mmap(file.fileno(), SIZE))
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path)])
    try:
        while status_block.read_stamp().turns == 0:
            assert writer.poll() is None
        seen = {status_block.read_stamp()[1:] for _ in range(READS)}
    finally:
        writer.kill()
        writer.wait()
    assert seen == {(5, 20, 3, 77)}
