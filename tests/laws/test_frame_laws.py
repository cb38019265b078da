"""Frames to and from a child process arrive as they were sent, in any pieces. Broken frames of a child are refused."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.lease import Lease
from worker.core.model import OK, Failure, FollowUp, Outcome, Partition, Record, Task, Verdict
from worker.core.ordering_group import OrderingGroup
from worker.isolation.frames import (
    CHUNK,
    GREATEST_REPORT,
    READY,
    REPORT,
    Ended,
    FrameError,
    Notice,
    TaskReader,
    pack_chunk,
    pack_ended,
    pack_notice,
    unpack_reports,
)

LEASE = Lease(Partition("t", 0))
TOPICS = ["requests", "others"]
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
values = st.binary(max_size=200) | st.none()
u64, i32 = st.integers(0, 2**64 - 1), st.integers(-(2**31), 2**31 - 1)
i64, u32 = st.integers(-(2**63), 2**63 - 1), st.integers(0, 2**32 - 1)
records = st.builds(
    Record,
    partition=st.builds(Partition, st.sampled_from(TOPICS), i32),
    offset=i64,
    key=values,
    value=values,
    headers=st.lists(st.tuples(texts, values), max_size=3).map(tuple),
    timestamp_ms=i64,
)
seconds = st.floats(min_value=0, max_value=1e9)
failures = st.builds(Failure, texts, texts, texts)


def an_end(number: int, sequence: int, attempt: int, started_ns: int, run_seconds: float, **rest: Any) -> Ended:
    """Return the end of a task as a child process reports it: without the task, and with a derived end time."""
    finished_ns = started_ns + int(run_seconds * 1e9) if started_ns else 0
    nothing: Any = None
    times: dict[str, Any] = {"started_ns": started_ns, "finished_ns": finished_ns, "run_seconds": run_seconds}
    return Ended(number, attempt, Outcome(nothing, sequence=sequence, **times, **rest))


good = st.builds(
    an_end,
    *(u64, i32, u32, u64, seconds),
    cpu_seconds=seconds,
    verdict=st.just(Verdict.OK),
    result=st.binary(max_size=300),
    sent=st.lists(st.builds(FollowUp, st.none() | st.sampled_from(TOPICS), values, texts), max_size=3).map(tuple),
)
bad = st.builds(
    an_end,
    *(u64, i32, u32, u64, seconds),
    cpu_seconds=seconds,
    verdict=st.sampled_from([verdict for verdict in Verdict if verdict is not Verdict.OK]),
    failure=failures,
    retry_after=st.none() | seconds,
)
notices = st.builds(Notice, st.integers(1, 3), u64, texts)


def packed(report: Ended | Notice) -> bytes:
    if isinstance(report, Notice):
        return pack_notice(*report)
    return pack_ended(report.number, report.attempt, report.outcome)


@st.composite
def tasks(draw: st.DrawFn) -> Task:
    """Draw a task with everything that a child process must know, and with an ordering group or none."""
    record = draw(records)
    task = Task(record, LEASE, draw(st.integers(1, 2**32 - 1)))
    task.resume = draw(values)
    task.group = draw(st.sampled_from([None, OrderingGroup()]))
    upcoming = draw(st.lists(st.tuples(i64, values), max_size=3))
    task.upcoming = tuple(Record(record.partition, offset, None, value) for offset, value in upcoming)
    return task


@given(sent=st.lists(tasks(), max_size=5), first=u64, settled=u64)
def test_tasks_arrive_as_they_were_sent(sent: list[Task], first: int, settled: int) -> None:
    """The attempt that arrives does not include the next start, because the child process counts it."""
    data = b"".join(pack_chunk(sent, {name: at for at, name in enumerate(TOPICS)}, first, settled))
    size, count, number, done = CHUNK.unpack_from(data)
    assert (size, count, number, done) == (len(data) - CHUNK.size, len(sent), first, settled)
    read = list(TaskReader(TOPICS).read(data, count))
    assert [(task.record, task.attempt + 1, task.resume, task.upcoming, task.size) for task, _ in read] == [
        (task.record, task.attempt, task.resume, task.upcoming, task.size) for task in sent
    ]
    groups = [0 if task.group is None else id(task.group) for task in sent]
    assert [group for _, group in read] == groups


@given(reports=st.lists(good | bad | notices, max_size=6), cut=st.integers(0, 5_000))
def test_reports_are_read_from_bytes_in_any_pieces(reports: list[Ended | Notice], cut: int) -> None:
    data = b"".join(map(packed, reports))
    first, taken = unpack_reports(data[:cut])
    second, rest = unpack_reports(data[taken:])
    assert first + second == reports
    assert taken + rest == len(data)


@given(data=st.binary(max_size=400))
def test_bytes_that_are_not_reports_are_refused_or_incomplete(data: bytes) -> None:
    """No other exception is raised, and no more bytes are taken than there are."""
    with contextlib.suppress(FrameError):
        _, taken = unpack_reports(data)
        assert taken <= len(data)


@given(report=bad | good, at=st.integers(0, 10_000), byte=st.integers(0, 255))
def test_a_broken_byte_is_refused_or_changes_a_value(report: Ended, at: int, byte: int) -> None:
    data = bytearray(packed(report))
    data[at % len(data)] = byte
    with contextlib.suppress(FrameError):
        reports, taken = unpack_reports(data)
        assert len(reports) <= 1
        assert taken <= len(data)


@pytest.mark.parametrize("seconds", [math.nan, math.inf, -1.0, 1e300])
def test_an_impossible_run_time_is_refused(seconds: float) -> None:
    data = pack_ended(
        1, 1, Outcome(Task(Record(Partition("t", 0), 0, None, None), LEASE), OK, started_ns=1, run_seconds=seconds)
    )
    with pytest.raises(FrameError):
        unpack_reports(data)


@pytest.mark.parametrize("head", [(GREATEST_REPORT + 1, READY, 0), (0, 4, 0), (0, 255, 0), (3, 0, 1)])
def test_a_report_with_an_impossible_head_is_refused(head: tuple[int, int, int]) -> None:
    """The report is too large, of an unknown kind, or too short for an end."""
    with pytest.raises(FrameError):
        unpack_reports(REPORT.pack(*head) + bytes(50))
