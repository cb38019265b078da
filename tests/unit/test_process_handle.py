"""The supervisor's view of a process whose status block was overwritten."""

from __future__ import annotations

from worker.process.status_block import SIZE, StatusBlock
from worker.supervisor.slots import ProcessHandle


def test_a_start_with_an_unknown_topic_is_not_shown() -> None:
    """C code of a handler may write anywhere. The supervisor must survive that."""
    process = ProcessHandle.__new__(ProcessHandle)  # without a child
    process.status_block = StatusBlock(bytearray(SIZE))
    process._topics, process._snapshot, process._start_delay = ("requests",), {}, 0.0
    process.status_block.started(200, 0, 1, 0, 0, None)
    assert "task" not in process.snapshot()
