"""The status block: shared memory between the supervisor and one worker process.

The worker process writes a stamp (on every turn of its main loop) and a snapshot of its metrics. Its executor writes
each start. The supervisor reads these, and writes commands and crash reports. Each field has one writer, so there is no
lock that a killed process could leave locked. A sequence number protects the snapshot and the crash reports: it is odd
while they are being written.
"""

from __future__ import annotations

import enum
import json
import struct
import time
from typing import Any, NamedTuple

_STAMP = struct.Struct("<QQIII")  # turns, answered requests, state, assigned partitions, pid
_STAMP_AT = 0
_COMMAND = struct.Struct("<I")
_COMMAND_AT = _STAMP.size
_SNAPSHOT = struct.Struct("<II")  # sequence number, length
_SNAPSHOT_AT = _COMMAND_AT + _COMMAND.size
_BODY_AT = _SNAPSHOT_AT + _SNAPSHOT.size
_BODY_LIMIT = 64 * 1024
_CRASHES_AT = _BODY_AT + _BODY_LIMIT  # laid out as the snapshot: sequence number, length, body
_CRASHES_LIMIT = 8 * 1024
_CRASHES_READS = 20  # at most, a millisecond apart
_START = struct.Struct("<BBIIIqq64p")  # activity, 1 with a key, topic, partition, attempt, offset, time, key
_PACK_START = _START.pack
_START_AT = _CRASHES_AT + _SNAPSHOT.size + _CRASHES_LIMIT
LONGEST_KEY = 63  # bytes; a longer key is left out
SIZE = _START_AT + _START.size


class Command(enum.IntFlag):
    """What the supervisor wants the process to do. Bits are only added, never removed."""

    NONE = 0
    START_TASKS = 1  # the startup barrier is open: tasks may start
    DRAIN = 2  # finish running tasks, start no more, leave the group
    CANCEL = 4  # cancel running tasks, then leave the group


class Activity(enum.IntEnum):
    """What the executor is doing."""

    UNKNOWN = 0  # not reported
    IDLE = 1
    RUNNING = 2


class Start(NamedTuple):
    """The last start of a task.

    ``topic`` is its index among the request topics. ``at_ns`` is in nanoseconds since the epoch.
    """

    activity: Activity
    topic: int
    partition: int
    attempt: int
    offset: int
    at_ns: int
    key: bytes | None


class Stamp(NamedTuple):
    """The values that the poll thread writes on every turn. ``turns`` only grows while the process lives."""

    turns: int
    answered: int
    state: int
    assigned: int
    pid: int


NO_STAMP = Stamp(0, 0, 0, 0, 0)


class StatusBlock:
    """The status block of one process, over a buffer of ``SIZE`` bytes that both processes map."""

    def __init__(self, buffer: Any) -> None:
        self._view = memoryview(buffer).cast("B")
        self._start = self._view[_START_AT : _START_AT + _START.size]
        self._turns = 0

    def _put(self, kind: struct.Struct, at: int, *values: int) -> None:
        # Write in one copy. Struct.pack_into writes zeros first, and the other process can see them: it did in 6,274 of
        # 1.44 million reads while another process wrote in a tight loop.
        self._view[at : at + kind.size] = kind.pack(*values)

    # -- the worker process's side (poll thread)

    def stamp(self, answered: int, state: int, assigned: int, pid: int) -> None:
        """Report that the main loop is running. ``answered`` counts requests since the process started."""
        self._turns += 1
        self._put(_STAMP, _STAMP_AT, self._turns, answered, state, assigned, pid)

    def command(self) -> Command:
        """Return the commands that the supervisor has sent so far."""
        return Command(_COMMAND.unpack_from(self._view, _COMMAND_AT)[0])

    def publish(self, snapshot: dict[str, Any]) -> None:
        """Replace the snapshot. If it is too large, its largest parts become null until it fits."""
        while len(body := _dump(snapshot)) > _BODY_LIMIT:
            largest = max(snapshot, key=lambda name: len(_dump(snapshot[name])))
            snapshot = {**snapshot, largest: None}
        self._publish(body, _SNAPSHOT_AT)

    def _publish(self, body: bytes, at: int) -> None:
        sequence = _SNAPSHOT.unpack_from(self._view, at)[0] | 1
        self._put(_SNAPSHOT, at, sequence, len(body))
        self._view[at + _SNAPSHOT.size : at + _SNAPSHOT.size + len(body)] = body
        self._put(_SNAPSHOT, at, (sequence + 1) & 0xFFFFFFFF, len(body))

    def crashes(self) -> list[Any]:
        """Return the crash reports of the supervisor. Wait up to 20 ms for reports that are being written.

        Without them, the wrong task might be charged. A supervisor that was killed meanwhile never finishes writing.
        """
        for _ in range(_CRASHES_READS):
            if not _SNAPSHOT.unpack_from(self._view, _CRASHES_AT)[0]:
                return []  # never written
            if (reports := self._read(_CRASHES_AT)) is not None:
                return list(reports)
            time.sleep(0.001)
        return []

    # -- the worker process's side (the executor's thread)

    def started(self, topic: int, partition: int, attempt: int, offset: int, at_ns: int, key: bytes | None) -> None:
        """Report that a task starts. This is written before the handler is called, so that it survives a crash."""
        with_key = key is not None and len(key) <= LONGEST_KEY
        # Plain numbers, because this is done for every task, however short.
        self._start[:] = _PACK_START(2, with_key, topic, partition, attempt, offset, at_ns, key or b"")

    def idle(self) -> None:
        """Report that no task is running."""
        self._start[0] = Activity.IDLE

    # -- the supervisor's side

    def order(self, command: Command) -> None:
        """Send a command. Earlier commands stay in force."""
        self._put(_COMMAND, _COMMAND_AT, self.command() | command)

    def read_stamp(self) -> Stamp:
        """Return the last stamp; all zeros before the first turn."""
        return Stamp._make(_STAMP.unpack_from(self._view, _STAMP_AT))

    def read(self) -> dict[str, Any] | None:
        """Return the last snapshot; None if there is none or it is being written (read it again later)."""
        snapshot: dict[str, Any] | None = self._read(_SNAPSHOT_AT)
        return snapshot

    def read_start(self) -> Start:
        """Return the last start. It may mix two starts if one is being written."""
        number, with_key, topic, partition, attempt, offset, at_ns, key = _START.unpack_from(self._view, _START_AT)
        known = number in set(Activity)  # a handler's C code may have overwritten it
        activity = Activity(number) if known else Activity.UNKNOWN
        return Start(activity, topic, partition, attempt, offset, at_ns, key if with_key else None)

    def report_crashes(self, crashes: list[Any]) -> None:
        """Replace the crash reports, which are JSON-ready values. If they are too large, leave out the oldest."""
        while len(body := _dump(crashes)) > _CRASHES_LIMIT:
            crashes = crashes[1:]
        self._publish(body, _CRASHES_AT)

    # -- both

    def _read(self, at: int) -> Any:
        sequence, length = _SNAPSHOT.unpack_from(self._view, at)
        if sequence == 0 or sequence & 1:
            return None
        body = bytes(self._view[at + _SNAPSHOT.size : at + _SNAPSHOT.size + length])
        if _SNAPSHOT.unpack_from(self._view, at)[0] != sequence:
            return None
        try:
            return json.loads(body)
        except ValueError:  # a handler's C code may have overwritten it; that must not stop the supervisor
            return None


def _dump(content: Any) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode()
