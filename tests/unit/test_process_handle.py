"""The supervisor's view of a process, from its status block."""

from __future__ import annotations

import time

from worker.process.status_block import SIZE, StatusBlock
from worker.supervisor.slots import ProcessHandle


def handle() -> ProcessHandle:
    """Return the handle of a process that is dead, without a child."""
    process = ProcessHandle.__new__(ProcessHandle)
    process.status_block = StatusBlock(bytearray(SIZE))
    process._topics, process._snapshot, process._start_delay, process.joined_at = ("requests",), {}, 0.0, None
    process.child = type("Child", (), {"pid": 7})()
    return process


def test_a_start_with_an_unknown_topic_is_not_shown() -> None:
    """C code of a handler may write anywhere. The supervisor must survive that."""
    process = handle()
    process.status_block.started(200, 0, 1, 0, 0, None)
    assert "task" not in process.snapshot()


def test_the_last_task_of_a_dead_process_is_shown_although_the_clock_was_set_back() -> None:
    """Otherwise a drain would end as if nothing was lost."""
    process = handle()
    process.status_block.started(0, 3, 1, 42, time.time_ns() + 3_600_000_000_000, None)
    assert process.snapshot()["task"]["offset"] == 42


def test_a_part_that_no_longer_fits_is_not_shown_as_it_was() -> None:
    process = handle()
    process.status_block.publish({"partitions": {"requests-0": 1}, "protocol": "consumer"})
    process.observe(1.0)
    assert process.snapshot()["partitions"]
    process.status_block.publish({"partitions": {str(n): n for n in range(10_000)}, "protocol": "consumer"})
    process.observe(2.0)
    assert process.snapshot() == {"protocol": "consumer"}


def test_another_thread_does_not_bring_an_earlier_snapshot_back() -> None:
    """The HTTP thread reads while the main thread records the end of the process."""
    process, read = handle(), StatusBlock.read
    process.status_block.publish({"counters": {"x": 1}})
    process.observe(1.0)

    def interrupted(block: StatusBlock) -> object:
        before = read(block)
        block.publish({"counters": {"x": 2}})
        block.read = lambda: read(block)  # type: ignore[method-assign]
        process.observe(2.0)
        return before

    process.status_block.read = lambda: interrupted(process.status_block)  # type: ignore[method-assign,assignment,return-value]
    process.snapshot()
    assert process._snapshot == {"counters": {"x": 2}}
