"""The status block in shared memory: two processes use it without waiting for each other."""

from __future__ import annotations

import json

import pytest

from worker.process import status_block as module
from worker.process.status_block import LONGEST_KEY, SIZE, Activity, Command, Stamp, StatusBlock

LIMIT = module._BODY_LIMIT


@pytest.fixture
def buffer() -> bytearray:
    return bytearray(SIZE)


def test_a_new_status_block_is_empty(buffer: bytearray) -> None:
    status_block = StatusBlock(buffer)
    assert status_block.read() is None
    assert status_block.read_stamp() == Stamp(0, 0, 0, 0, 0)
    assert status_block.command() is Command.NONE


def test_the_supervisor_reads_the_last_stamp(buffer: bytearray) -> None:
    """Each stamp adds one turn."""
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    process.stamp(0, 10, 0, 77)
    process.stamp(5, 20, 3, 77)
    assert supervisor.read_stamp() == Stamp(turns=2, answered=5, state=20, assigned=3, pid=77)


def test_commands_add_up_and_are_never_withdrawn(buffer: bytearray) -> None:
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    supervisor.order(Command.START_TASKS)
    assert process.command() is Command.START_TASKS
    supervisor.order(Command.DRAIN)
    assert process.command() == Command.START_TASKS | Command.DRAIN


def test_a_snapshot_replaces_the_previous_one(buffer: bytearray) -> None:
    """A shorter snapshot contains nothing of a longer one before it."""
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    process.publish({"name": "long" * 100, "unicode": "прогрес"})
    assert supervisor.read() == {"name": "long" * 100, "unicode": "прогрес"}
    process.publish({"n": 1})
    assert supervisor.read() == {"n": 1}


def test_the_largest_snapshot_fits_and_one_byte_more_does_not(buffer: bytearray) -> None:
    """The largest parts of a snapshot that is too large are null. It is never written beyond its place in the block."""
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    room = LIMIT - len(json.dumps({"n": 1, "x": ""}, separators=(",", ":")))
    process.publish({"n": 1, "x": "y" * room})
    assert supervisor.read() == {"n": 1, "x": "y" * room}
    process.publish({"n": 1, "x": "y" * (room + 1)})
    assert supervisor.read() == {"n": 1, "x": None}
    process.publish({"x": "y" * LIMIT, "z": ["z"] * LIMIT})
    assert supervisor.read() == {"x": None, "z": None}
    assert len(buffer) == SIZE


def test_fields_do_not_overlap(buffer: bytearray) -> None:
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    process.publish({"a": 1})
    process.stamp(2**64 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    supervisor.order(Command.CANCEL)
    assert supervisor.read() == {"a": 1}
    assert supervisor.read_stamp() == Stamp(1, 2**64 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    assert process.command() is Command.CANCEL


def test_a_snapshot_that_is_being_written_is_not_read(buffer: bytearray) -> None:
    """The sequence number is odd during a write, and stays odd if the writer dies. The next writer corrects it."""
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    process.publish({"a": 1})
    sequence, length = module._SNAPSHOT.unpack_from(buffer, module._SNAPSHOT_AT)
    module._SNAPSHOT.pack_into(buffer, module._SNAPSHOT_AT, sequence + 1, length)
    assert supervisor.read() is None
    StatusBlock(buffer).publish({"a": 2})
    assert supervisor.read() == {"a": 2}


def test_a_snapshot_that_changed_under_the_reader_is_not_used(
    buffer: bytearray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer writes between the reader's two reads of the sequence number."""
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    process.publish({"a": 1})

    class Torn:
        """The struct, with a writer that writes after the first read."""

        def unpack_from(self, view: memoryview, at: int) -> tuple[int, int]:
            seen: tuple[int, int] = snapshot.unpack_from(view, at)
            monkeypatch.setattr(module, "_SNAPSHOT", snapshot)
            process.publish({"a": 2})
            return seen

    snapshot = module._SNAPSHOT
    monkeypatch.setattr(module, "_SNAPSHOT", Torn())
    assert supervisor.read() is None
    assert supervisor.read() == {"a": 2}


def test_the_sequence_number_wraps_around(buffer: bytearray) -> None:
    """Snapshots can still be read after more than two thousand million of them."""
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    module._SNAPSHOT.pack_into(buffer, module._SNAPSHOT_AT, 0xFFFFFFFE, 0)
    process.publish({"a": 1})
    process.publish({"a": 2})
    assert supervisor.read() == {"a": 2}


def test_the_last_start_stays_readable_while_the_process_is_idle(buffer: bytearray) -> None:
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    assert supervisor.read_start().activity is Activity.UNKNOWN
    process.started(1, 5, 2, 77, 1_000, b"key")
    start = supervisor.read_start()
    assert start == (Activity.RUNNING, 1, 5, 2, 77, 1_000, b"key")
    process.idle()
    assert supervisor.read_start() == (Activity.IDLE, *start[1:])


@pytest.mark.parametrize(("key", "seen"), [(None, None), (b"", b""), (b"k" * LONGEST_KEY, b"k" * LONGEST_KEY)])
def test_a_start_has_the_key_of_its_request_unless_the_key_is_too_long(
    buffer: bytearray, key: bytes | None, seen: bytes | None
) -> None:
    StatusBlock(buffer).started(0, 0, 1, 0, 0, key)
    assert StatusBlock(buffer).read_start().key == seen
    StatusBlock(buffer).started(0, 0, 1, 0, 0, b"k" * (LONGEST_KEY + 1))
    assert StatusBlock(buffer).read_start().key is None


def test_a_start_that_was_overwritten_is_unknown(buffer: bytearray) -> None:
    """C code of a handler may overwrite it. The supervisor must not fail because of that."""
    StatusBlock(buffer).started(0, 0, 1, 0, 0, None)
    buffer[module._START_AT] = 99
    assert StatusBlock(buffer).read_start().activity is Activity.UNKNOWN


def test_a_reader_waits_for_crash_reports_that_are_being_written(
    buffer: bytearray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the reports, the next owner of a partition would charge the wrong task with the crash."""
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    supervisor.report_crashes([["old"]])
    buffer[module._CRASHES_AT] |= 1
    assert process.crashes() == [], "the supervisor died while it was writing"
    monkeypatch.setattr("worker.process.status_block.time.sleep", lambda _: supervisor.report_crashes([["recent"]]))
    assert process.crashes() == [["recent"]]


def test_crash_reports_are_replaced_and_the_oldest_are_dropped_first(buffer: bytearray) -> None:
    process, supervisor = StatusBlock(buffer), StatusBlock(buffer)
    assert process.crashes() == []
    supervisor.report_crashes([["old"], ["recent"]])
    assert process.crashes() == [["old"], ["recent"]]
    supervisor.report_crashes([["x" * module._CRASHES_LIMIT], ["recent"]])
    assert process.crashes() == [["recent"]]
    assert len(buffer) == SIZE
