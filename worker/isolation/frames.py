"""Encodes tasks and reports as bytes. The parent checks all bounds, because a child's memory may be corrupted.

The parent sends a chunk to the child: a header and ``count`` tasks. The child sends back a report for each task: a
header and a body.
"""

from __future__ import annotations

import math
import struct
from typing import TYPE_CHECKING, NamedTuple, cast

from worker.core.model import OK, Failure, FollowUp, Outcome, Partition, Record, Task, Verdict

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from worker.core.claim import Claim
    from worker.core.model import Headers

    Buffer = bytes | bytearray | memoryview
    _Rest = tuple[Headers, tuple[Record, ...], bytes | None]

CHUNK = struct.Struct("<QIQQ")  # remaining bytes, count, number of the first task, number up to which all have ended
_TASK = struct.Struct("<HiqqIQiiI")  # topic, partition, offset, timestamp, attempt, group, key, value, rest (bytes)
_HEADER = struct.Struct("<Ii")  # bytes of name and value
_UPCOMING = struct.Struct("<qi")  # offset, bytes of the value
_COUNTS = struct.Struct("<IIi")  # headers, upcoming, bytes of the checkpoint
REPORT = struct.Struct("<IBQ")  # remaining bytes, kind, number of the task
# sequence, attempt, started_ns, run and CPU seconds, verdict, bytes of follow-up requests at the end
_ENDED = struct.Struct("<iIQddBI")
# Both in one, because packing twice takes longer.
_REPORT_OF_END = struct.Struct(REPORT.format + _ENDED.format.lstrip("<"))
_FOLLOW_UP = struct.Struct("<iiI")  # bytes of topic, key and payload
_FAILURE = struct.Struct("<dIII")  # retry_after (NaN: none), bytes of type, message and traceback

_PROGRESS = struct.Struct("<d")

ENDED, SKIPPED, READY, UNSTARTABLE, PROGRESS, CHECKPOINT = range(6)
GREATEST_REPORT = 64 << 20  # bytes; a greater result is refused in the child
NONE = -1  # the length that stands for None
_MESSAGE_LIMIT = 1_000  # characters
_LONGEST = 1e9  # seconds that an attempt can take
LARGE = 1 << 18  # parts of at least this many bytes are not joined before writing

_VERDICTS = tuple(Verdict)
_NUMBERS = {verdict: number for number, verdict in enumerate(_VERDICTS)}
_NO_CLAIM = cast("Claim", None)  # of tasks in a child
_NO_TASK = cast("Task", None)  # of outcomes that a child reports
_NO_REST: _Rest = ((), (), None)


class FrameError(ValueError):
    """The bytes were not written by a correct child."""


class Ended(NamedTuple):
    """The end of one start of a task. ``outcome.task`` is not set, because a child does not have our task."""

    number: int
    attempt: int
    outcome: Outcome


class Notice(NamedTuple):
    """Another report: a task was skipped, the child is ready, or it cannot start for the reason in ``text``."""

    kind: int
    number: int
    text: str


class Progress(NamedTuple):
    """The progress of the running task, from 0 to 1."""

    number: int
    fraction: float
    message: str


class Checkpoint(NamedTuple):
    """The checkpoint from which the next start of the running task resumes."""

    number: int
    data: bytes


AnyReport = Ended | Notice | Progress | Checkpoint


# -- tasks, to the child


def pack_chunk(tasks: Sequence[Task], topics: dict[str, int], first: int, settled: int) -> list[bytes]:
    """Return a chunk in parts, joined if small. All tasks up to number ``settled`` have ended.

    ``attempt`` of each task includes the start that is about to happen.
    """
    parts = [b""]
    for task in tasks:
        parts += _pack_task(task, topics)
    size = sum(map(len, parts))
    parts[0] = CHUNK.pack(size, len(tasks), first, settled)
    return parts if size > LARGE else [b"".join(parts)]


def _pack_task(task: Task, topics: dict[str, int]) -> list[bytes]:
    record, group = task.record, task.group
    topic, partition = record.partition
    key, value = record.key, record.value
    rest = _pack_rest(task) if record.headers or task.upcoming or task.resume is not None else b""
    head = _TASK.pack(
        topics[topic],
        partition,
        record.offset,
        record.timestamp_ms,
        task.attempt,
        0 if group is None else id(group),  # unique while a task of the group is in flight
        NONE if key is None else len(key),
        NONE if value is None else len(value),
        len(rest),
    )
    return [head, key or b"", value or b"", rest]


def _pack_rest(task: Task) -> bytes:
    headers, resume = task.record.headers, task.resume
    size = NONE if resume is None else len(resume)
    parts = [_COUNTS.pack(len(headers), len(task.upcoming), size), resume or b""]
    for name, value in headers:
        encoded = name.encode()
        parts += [_HEADER.pack(len(encoded), NONE if value is None else len(value)), encoded, value or b""]
    for record in task.upcoming:
        value = record.value
        parts += [_UPCOMING.pack(record.offset, NONE if value is None else len(value)), value or b""]
    return b"".join(parts)


class TaskReader:
    """Reads the tasks of chunks, in the child. The parent wrote them, so bounds are not checked."""

    def __init__(self, topics: Sequence[str]) -> None:
        self._topics = topics
        self._partitions: dict[tuple[int, int], Partition] = {}

    def read(self, data: Buffer, count: int) -> Iterator[tuple[Task, int]]:
        """Yield each task of a whole chunk with the number of its ordering group, 0 for none.

        ``attempt`` is without the start that is about to happen. Claims and ordering groups stay with the parent.
        """
        at, unpack, size = CHUNK.size, _TASK.unpack_from, _TASK.size
        for _ in range(count):
            topic, number, offset, stamp, attempt, group, key, value, rest = unpack(data, at)
            at += size
            key_bytes = value_bytes = None
            if key >= 0:
                key_bytes = bytes(data[at : at + key])
                at += key
            if value >= 0:
                value_bytes = bytes(data[at : at + value])
                at += value
            partition = self._partitions.get((topic, number)) or self._partition(topic, number)
            headers, upcoming, resume = _unpack_rest(data, at, partition) if rest else _NO_REST
            at += rest
            task = Task(Record(partition, offset, key_bytes, value_bytes, headers, stamp), _NO_CLAIM, attempt - 1)
            task.upcoming, task.resume = upcoming, resume
            yield task, group

    def _partition(self, topic: int, number: int) -> Partition:
        partition = self._partitions[topic, number] = Partition(self._topics[topic], number)
        return partition


def _slice(data: Buffer, at: int, size: int) -> tuple[bytes | None, int]:
    return (None, at) if size == NONE else (bytes(data[at : at + size]), at + size)


def _unpack_rest(data: Buffer, at: int, partition: Partition) -> _Rest:
    headers, upcoming = [], []
    count, further, size = _COUNTS.unpack_from(data, at)
    resume, at = _slice(data, at + _COUNTS.size, size)
    for _ in range(count):
        name, size = _HEADER.unpack_from(data, at)
        at += _HEADER.size
        text = bytes(data[at : at + name]).decode()
        value, at = _slice(data, at + name, size)
        headers.append((text, value))
    for _ in range(further):
        offset, size = _UPCOMING.unpack_from(data, at)
        value, at = _slice(data, at + _UPCOMING.size, size)
        upcoming.append(Record(partition, offset, None, value))
    return tuple(headers), tuple(upcoming), resume


# -- reports, from the child


def pack_ended(number: int, attempt: int, outcome: Outcome) -> bytes:
    """Return the report of an end."""
    failure = outcome.failure
    body = outcome.result if failure is None else _pack_failure(failure, outcome.retry_after)
    sent = _pack_sent(outcome.sent) if outcome.sent else b""
    head = _REPORT_OF_END.pack(
        _ENDED.size + len(body) + len(sent),
        ENDED,
        number,
        outcome.sequence,
        attempt,
        outcome.started_ns,
        outcome.run_seconds,
        outcome.cpu_seconds,
        _NUMBERS[outcome.verdict],
        len(sent),
    )
    return b"".join((head, body, sent)) if body or sent else head


def _pack_sent(sent: Sequence[FollowUp]) -> bytes:
    parts = []
    for topic, key, payload in sent:
        named, text = (topic or "").encode(), payload.encode()
        parts += [_FOLLOW_UP.pack(len(named) or NONE, NONE if key is None else len(key), len(text)), named]
        parts += [key or b"", text]
    return b"".join(parts)


def pack_notice(kind: int, number: int = 0, text: str = "") -> bytes:
    """Return any other report."""
    body = text.encode(errors="replace")
    return REPORT.pack(len(body), kind, number) + body


def pack_progress(number: int, fraction: float, message: str) -> bytes:
    """Return the report of a handler's progress."""
    body = _PROGRESS.pack(fraction) + message[:_MESSAGE_LIMIT].encode(errors="replace")
    return REPORT.pack(len(body), PROGRESS, number) + body


def pack_checkpoint(number: int, data: bytes) -> bytes:
    """Return the report of a checkpoint."""
    return REPORT.pack(len(data), CHECKPOINT, number) + data


def _pack_failure(failure: Failure, retry_after: float | None) -> bytes:
    texts = [text.encode(errors="replace") for text in failure]
    sizes = [len(text) for text in texts]
    return _FAILURE.pack(math.nan if retry_after is None else retry_after, *sizes) + b"".join(texts)


def unpack_reports(data: Buffer) -> tuple[list[AnyReport], int]:
    """Return all complete reports at the beginning of ``data``, and their size in bytes. Raise FrameError."""
    reports: list[AnyReport] = []
    at, end = 0, len(data)
    while end - at >= REPORT.size:
        size, kind, number = REPORT.unpack_from(data, at)
        if size > GREATEST_REPORT or kind > CHECKPOINT:
            raise FrameError(f"a report of kind {kind} with {size} bytes")
        if end - at - REPORT.size < size:
            break
        body = at + REPORT.size
        at = body + size
        if kind == ENDED:
            reports.append(_unpack_ended(number, data, body, at))
        elif kind == PROGRESS:
            reports.append(_unpack_progress(number, bytes(data[body:at])))
        elif kind == CHECKPOINT:
            reports.append(Checkpoint(number, bytes(data[body:at])))
        else:
            reports.append(Notice(kind, number, _text(data[body:at])))
    return reports, at


def _unpack_ended(number: int, data: Buffer, at: int, end: int) -> Ended:
    if end - at < _ENDED.size:
        raise FrameError(f"an end of {end - at} bytes")
    sequence, attempt, started_ns, run, cpu, verdict, size = _ENDED.unpack_from(data, at)
    if verdict >= len(_VERDICTS):
        raise FrameError(f"verdict {verdict}")
    if not 0 <= run <= _LONGEST:
        raise FrameError(f"a run time of {run} s")
    if size > end - at - _ENDED.size:
        raise FrameError(f"follow-up requests of {size} bytes")
    rest, what = bytes(data[at + _ENDED.size : end - size]), _VERDICTS[verdict]
    failure = retry_after = None
    if rest and what is not OK:
        failure, retry_after = _unpack_failure(rest)
        rest = b""
    finished_ns = started_ns + int(run * 1e9) if started_ns else 0
    sent = _unpack_sent(bytes(data[end - size : end])) if size else ()
    outcome = Outcome(_NO_TASK, what, sequence, started_ns, rest, failure, retry_after, finished_ns, run, cpu, sent)
    return Ended(number, attempt, outcome)


def _unpack_sent(body: bytes) -> tuple[FollowUp, ...]:
    sent, at = [], 0
    while at < len(body):
        if len(body) - at < _FOLLOW_UP.size:
            raise FrameError(f"a follow-up request of {len(body) - at} bytes")
        sizes = _FOLLOW_UP.unpack_from(body, at)
        at += _FOLLOW_UP.size
        if min(sizes) < NONE or sum(max(0, size) for size in sizes) > len(body) - at:
            raise FrameError("a follow-up request whose lengths do not add up")
        topic, at = _slice(body, at, sizes[0])
        key, at = _slice(body, at, sizes[1])
        payload, at = _slice(body, at, sizes[2])
        sent.append(FollowUp(None if topic is None else _text(topic), key, _text(payload or b"")))
    return tuple(sent)


def _unpack_progress(number: int, body: bytes) -> Progress:
    if len(body) < _PROGRESS.size:
        raise FrameError(f"a progress of {len(body)} bytes")
    (fraction,) = _PROGRESS.unpack_from(body)
    if not 0 <= fraction <= 1:
        raise FrameError(f"progress {fraction}")
    return Progress(number, fraction, _text(body[_PROGRESS.size :]))


def _unpack_failure(body: bytes) -> tuple[Failure, float | None]:
    if len(body) < _FAILURE.size:
        raise FrameError(f"a failure of {len(body)} bytes")
    retry_after, kind, message, traceback = _FAILURE.unpack_from(body)
    if _FAILURE.size + kind + message + traceback != len(body):
        raise FrameError("a failure whose lengths do not add up")
    texts, at = [], _FAILURE.size
    for size in (kind, message, traceback):
        texts.append(_text(body[at : at + size]))
        at += size
    return Failure(*texts), None if math.isnan(retry_after) else retry_after


def _text(body: Buffer) -> str:
    return bytes(body).decode(errors="replace")
