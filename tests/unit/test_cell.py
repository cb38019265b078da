"""The shared-memory cell, read and written by two who do not wait for each other."""

from __future__ import annotations

import json

import pytest

from worker.process import cell as cell_module
from worker.process.cell import SIZE, Cell, Command, Stamp

LIMIT = cell_module._BODY_LIMIT


@pytest.fixture
def buffer() -> bytearray:
    return bytearray(SIZE)


def test_an_untouched_cell_says_nothing(buffer: bytearray) -> None:
    cell = Cell(buffer)
    assert cell.read() is None
    assert cell.read_stamp() == Stamp(0, 0, 0, 0, 0)
    assert cell.command() is Command.NONE


def test_the_other_side_sees_what_was_stamped(buffer: bytearray) -> None:
    """Each stamp counts one turn more."""
    process, supervisor = Cell(buffer), Cell(buffer)
    process.stamp(0, 10, 0, 77)
    process.stamp(5, 20, 3, 77)
    assert supervisor.read_stamp() == Stamp(turns=2, answered=5, state=20, assigned=3, pid=77)


def test_orders_add_up_and_are_never_taken_back(buffer: bytearray) -> None:
    process, supervisor = Cell(buffer), Cell(buffer)
    supervisor.order(Command.START_TASKS)
    assert process.command() is Command.START_TASKS
    supervisor.order(Command.DRAIN)
    assert process.command() == Command.START_TASKS | Command.DRAIN


def test_a_snapshot_replaces_the_last(buffer: bytearray) -> None:
    """Also a shorter one: nothing of the longer is left in it."""
    process, supervisor = Cell(buffer), Cell(buffer)
    process.publish({"name": "long" * 100, "unicode": "прогрес"})
    assert supervisor.read() == {"name": "long" * 100, "unicode": "прогрес"}
    process.publish({"n": 1})
    assert supervisor.read() == {"n": 1}


def test_the_largest_snapshot_fits_and_one_byte_more_does_not(buffer: bytearray) -> None:
    """One that is too large goes without its largest parts, and touches nothing beyond its place."""
    process, supervisor = Cell(buffer), Cell(buffer)
    room = LIMIT - len(json.dumps({"n": 1, "x": ""}, separators=(",", ":")))
    process.publish({"n": 1, "x": "y" * room})
    assert supervisor.read() == {"n": 1, "x": "y" * room}
    process.publish({"n": 1, "x": "y" * (room + 1)})
    assert supervisor.read() == {"n": 1}
    process.publish({"x": "y" * LIMIT, "z": ["z"] * LIMIT})
    assert supervisor.read() == {}
    assert len(buffer) == SIZE


def test_fields_do_not_overlap(buffer: bytearray) -> None:
    process, supervisor = Cell(buffer), Cell(buffer)
    process.publish({"a": 1})
    process.stamp(2**64 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    supervisor.order(Command.CANCEL)
    assert supervisor.read() == {"a": 1}
    assert supervisor.read_stamp() == Stamp(1, 2**64 - 1, 2**32 - 1, 2**32 - 1, 2**32 - 1)
    assert process.command() is Command.CANCEL


def test_a_snapshot_that_is_being_written_is_not_read(buffer: bytearray) -> None:
    """The sequence number is odd then, also when its writer died there; the next writer mends it."""
    process, supervisor = Cell(buffer), Cell(buffer)
    process.publish({"a": 1})
    sequence, length = cell_module._SNAPSHOT.unpack_from(buffer, cell_module._SNAPSHOT_AT)
    cell_module._SNAPSHOT.pack_into(buffer, cell_module._SNAPSHOT_AT, sequence + 1, length)
    assert supervisor.read() is None
    Cell(buffer).publish({"a": 2})
    assert supervisor.read() == {"a": 2}


def test_a_snapshot_that_changed_under_the_reader_is_not_used(
    buffer: bytearray, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer is let in between the reader's two looks at the sequence number."""
    process, supervisor = Cell(buffer), Cell(buffer)
    process.publish({"a": 1})

    class Torn:
        """The struct, with a writer who comes in after the first look."""

        def unpack_from(self, view: memoryview, at: int) -> tuple[int, int]:
            seen: tuple[int, int] = snapshot.unpack_from(view, at)
            monkeypatch.setattr(cell_module, "_SNAPSHOT", snapshot)
            process.publish({"a": 2})
            return seen

    snapshot = cell_module._SNAPSHOT
    monkeypatch.setattr(cell_module, "_SNAPSHOT", Torn())
    assert supervisor.read() is None
    assert supervisor.read() == {"a": 2}


def test_the_sequence_number_starts_again_after_its_greatest(buffer: bytearray) -> None:
    """After two thousand million snapshots there is still something to read."""
    process, supervisor = Cell(buffer), Cell(buffer)
    cell_module._SNAPSHOT.pack_into(buffer, cell_module._SNAPSHOT_AT, 0xFFFFFFFE, 0)
    process.publish({"a": 1})
    process.publish({"a": 2})
    assert supervisor.read() == {"a": 2}
