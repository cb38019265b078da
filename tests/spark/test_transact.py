"""Exactly-once sending, without Kafka: each row is committed once, whenever the task dies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.exactly_once.chunks import Sent, chunks, send_rows
from pipeline.exactly_once.progress_log import ProgressLog
from pipeline.exactly_once.ranges import Ranges
from pipeline.exactly_once.throttle import Throttle

if TYPE_CHECKING:
    from pipeline.exactly_once.chunks import Row

numbers = st.frozensets(st.integers(0, 60))


def row(part: int, number: int, value: bytes = b"") -> Row:
    return part, number, "topic", f"{part}/{number}".encode(), value, []


class DiedError(Exception):
    """The task was killed."""


class Broker:
    """A broker that keeps the committed rows, and lets the sender die before or after a commit."""

    def __init__(self, deaths: list[str | None]) -> None:
        self.committed: list[tuple[int, int]] = []
        self.deaths = deaths
        self.opened: list[int] = []

    def channel(self, part: int) -> FakeChannel:
        self.opened.append(part)
        return FakeChannel(self, part)


class FakeChannel:
    def __init__(self, broker: Broker, part: int) -> None:
        self._broker = broker
        self.sent = Ranges(number for at, number in broker.committed if at == part)
        self.closed = False

    def send(self, rows: list[Row]) -> None:
        death = self._broker.deaths.pop(0) if self._broker.deaths else None
        if death == "before":
            raise DiedError
        self._broker.committed += [(part, number) for part, number, *_ in rows]
        self.sent = Ranges.union([self.sent, Ranges(number for _, number, *_ in rows)])
        if death == "after":
            raise DiedError

    def close(self) -> None:
        self.closed = True


@given(
    st.dictionaries(st.integers(0, 3), numbers, min_size=1),
    st.integers(1, 10),
    st.lists(st.sampled_from([None, "before", "after"]), max_size=8),
)
def test_each_row_is_committed_once_however_often_the_task_dies(
    parts: dict[int, frozenset[int]], chunk: int, deaths: list[str | None]
) -> None:
    rows = [row(part, number) for part in sorted(parts) for number in sorted(parts[part])]
    broker = Broker(list(deaths))
    results: list[Sent] = []
    while True:
        try:
            results = list(send_rows(rows, chunk, broker.channel, Throttle(None)))
            break
        except DiedError:
            continue
    assert sorted(broker.committed) == [(part, number) for part, number, *_ in rows]
    assert sum(one.sent + one.skipped for one in results) == len(rows)


def test_a_second_run_sends_nothing() -> None:
    broker = Broker([])
    rows = [row(0, number) for number in range(10)]
    assert list(send_rows(rows, 3, broker.channel, Throttle(None))) == [Sent(0, 10, 0)]
    assert list(send_rows(rows, 4, broker.channel, Throttle(None))) == [Sent(0, 0, 10)]
    assert len(broker.committed) == 10


@given(st.lists(st.integers(0, 40), max_size=30), st.integers(1, 5), st.integers(1, 60))
def test_chunks_are_small_and_complete(sizes: list[int], most: int, most_bytes: int) -> None:
    rows = [row(0, number, b"x" * size) for number, size in enumerate(sizes)]
    cut = list(chunks(rows, most, most_bytes))
    assert [one for chunk in cut for one in chunk] == rows
    for chunk in cut:
        assert 1 <= len(chunk) <= most
        assert len(chunk) == 1 or sum(len(one[4] or b"") for one in chunk) <= most_bytes


# ---------------------------------------------------------------- throttle


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@example(1.0, [(1, 0.0), (1, 0.0)])
@given(st.floats(0.1, 1e6), st.lists(st.tuples(st.integers(1, 100), st.floats(0, 3)), min_size=1))
def test_a_throttle_never_lets_more_rows_pass_than_its_rate_allows(
    rate: float, batches: list[tuple[int, float]]
) -> None:
    clock = Clock()
    throttle = Throttle(rate, lambda: clock.now, clock.sleep)
    sent = 0
    for rows, work in batches:
        throttle.wait(rows)
        # The time of the earlier rows is over when more rows are sent.
        assert sent <= rate * (clock.now - 100.0) * (1 + 1e-9) + 1e-6
        sent += rows
        clock.now += work


def test_a_throttle_without_a_rate_never_waits() -> None:
    throttle = Throttle(None, sleep=Clock().sleep, now=lambda: pytest.fail("asked for the time"))
    throttle.wait(10**9)
    assert throttle.chunk(500) == 500


def test_a_rate_limits_chunks_to_the_rows_of_a_second() -> None:
    assert (Throttle(20.0).chunk(500), Throttle(0.1).chunk(500), Throttle(1e6).chunk(500)) == (20, 1, 500)


# ---------------------------------------------------------------- ranges and the records of the progress log


@given(numbers, numbers)
def test_ranges_are_sets(some: frozenset[int], others: frozenset[int]) -> None:
    ranges = Ranges.union([Ranges(some), Ranges(others)])
    both = some | others
    assert [n for n in range(-1, 62) if n in ranges] == sorted(both)
    assert len(ranges) == len(both)
    assert Ranges.parse(str(ranges)) == ranges == Ranges(both)


def test_consecutive_numbers_are_one_range() -> None:
    assert str(Ranges([5, 1, 2, 3])) == "1-3,5"
    assert str(Ranges()) == ""


@pytest.mark.parametrize("text", ["x", "1-2-3", "-1", "1,,a"])
def test_an_invalid_text_is_not_parsed_as_ranges(text: str) -> None:
    with pytest.raises(ValueError, match=r"invalid literal"):
        Ranges.parse(text)


@given(st.integers(0, 1000), st.text())
def test_a_progress_log_recognizes_only_its_own_records(part: int, slot: str) -> None:
    progress_log = ProgressLog({}, "t", "submit/j/id")
    assert progress_log.part_of(ProgressLog({}, "t", "submit/j/id").key(part, slot)) == part
    for other in ("submit/j2/id", "submit/j/i", "replay/j/id", "submit/j/id/1"):
        assert ProgressLog({}, "t", other).part_of(progress_log.key(part, slot)) is None


def test_the_repr_of_a_progress_log_has_no_secrets() -> None:
    assert "hunter2" not in repr(ProgressLog({"sasl.password": "hunter2"}, "t", "n"))
