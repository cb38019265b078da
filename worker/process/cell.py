"""The shared-memory cell between the supervisor and one worker process: lock-free, because a lock dies with its holder.

The process pushes (a stamp, its state, a snapshot of its numbers), the supervisor reads; the other way go commands.
Each field has one writer. The snapshot is guarded by a sequence number: odd while it is being written.
"""

from __future__ import annotations

import enum
import json
import struct
from typing import Any, NamedTuple

_STAMP = struct.Struct("<QQIII")  # turns, answered requests, state, assigned partitions, pid
_STAMP_AT = 0
_COMMAND = struct.Struct("<I")
_COMMAND_AT = _STAMP.size
_SNAPSHOT = struct.Struct("<II")  # sequence number, length
_SNAPSHOT_AT = _COMMAND_AT + _COMMAND.size
_BODY_AT = _SNAPSHOT_AT + _SNAPSHOT.size
_BODY_LIMIT = 64 * 1024
SIZE = _BODY_AT + _BODY_LIMIT


class Command(enum.IntFlag):
    """What the supervisor wants of the process. Bits are only ever added."""

    NONE = 0
    START_TASKS = 1  # the siblings have joined: tasks may start
    DRAIN = 2  # finish what runs, start nothing more, leave
    CANCEL = 4  # cancel what runs, then leave


class Stamp(NamedTuple):
    """What the poll thread stamps on every turn; ``turns`` only grows while the process lives."""

    turns: int
    answered: int
    state: int
    assigned: int
    pid: int


NO_STAMP = Stamp(0, 0, 0, 0, 0)


class Cell:
    """One process's cell over a buffer of ``SIZE`` bytes that both sides map."""

    def __init__(self, buffer: Any) -> None:
        self._view = memoryview(buffer).cast("B")
        self._turns = 0

    def _put(self, kind: struct.Struct, at: int, *values: int) -> None:
        # In one copy. Struct.pack_into fills the place with zeros first, and the other side does see them: in 6,274 of
        # 1.44 million reads beside a writer in a tight loop.
        self._view[at : at + kind.size] = kind.pack(*values)

    # -- the worker process's side (poll thread)

    def stamp(self, answered: int, state: int, assigned: int, pid: int) -> None:
        """Say "alive": called on every turn of the poll loop. ``answered`` counts since the process started."""
        self._turns += 1
        self._put(_STAMP, _STAMP_AT, self._turns, answered, state, assigned, pid)

    def command(self) -> Command:
        """What the supervisor wants."""
        return Command(_COMMAND.unpack_from(self._view, _COMMAND_AT)[0])

    def publish(self, snapshot: dict[str, Any]) -> None:
        """Show a snapshot, replacing the last. One too large for the cell goes without its largest parts."""
        while len(body := _dump(snapshot)) > _BODY_LIMIT:
            largest = max(snapshot, key=lambda name: len(_dump(snapshot[name])))
            snapshot = {name: part for name, part in snapshot.items() if name != largest}
        sequence = _SNAPSHOT.unpack_from(self._view, _SNAPSHOT_AT)[0] | 1
        self._put(_SNAPSHOT, _SNAPSHOT_AT, sequence, len(body))
        self._view[_BODY_AT : _BODY_AT + len(body)] = body
        self._put(_SNAPSHOT, _SNAPSHOT_AT, (sequence + 1) & 0xFFFFFFFF, len(body))

    # -- the supervisor's side

    def order(self, command: Command) -> None:
        """Add to what the process is asked to do."""
        self._put(_COMMAND, _COMMAND_AT, self.command() | command)

    def read_stamp(self) -> Stamp:
        """The last stamp; all zeros before the first turn."""
        return Stamp._make(_STAMP.unpack_from(self._view, _STAMP_AT))

    def read(self) -> dict[str, Any] | None:
        """The last snapshot, or None if there is none or it is being written right now (ask again later)."""
        sequence, length = _SNAPSHOT.unpack_from(self._view, _SNAPSHOT_AT)
        if sequence == 0 or sequence & 1:
            return None
        body = bytes(self._view[_BODY_AT : _BODY_AT + length])
        if _SNAPSHOT.unpack_from(self._view, _SNAPSHOT_AT)[0] != sequence:
            return None
        try:
            snapshot: dict[str, Any] = json.loads(body)
        except ValueError:  # a handler's C code may write anywhere; the supervisor must not fall for it
            return None
        return snapshot


def _dump(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
