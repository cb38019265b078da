"""The parts of ``worker.Client`` that do not use Kafka: ids, requests, futures, and the matching of answers."""

from __future__ import annotations

import asyncio
import concurrent.futures
import datetime as dt
import pickle
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import worker
from worker.client.book import CLOCK_SKEW_MS, Book
from worker.client.futures import AsyncTaskFuture, TaskFuture
from worker.client.ids import InvalidIdError, Origin, TaskId
from worker.client.requests import headers_of, payload_text

ORIGIN = Origin("requests", 3, 1042)
HOUR = 3_600_000


# ---------------------------------------------------------------- what is exported


def test_import_worker_does_not_import_the_kafka_client() -> None:
    """``import worker`` is cheap, and ``worker.Client`` is available nevertheless."""
    program = "import sys, worker; assert not {'confluent_kafka', 'pydantic'} & set(sys.modules); worker.Client"

    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Cliemt'"):
        _ = worker.Cliemt


# ---------------------------------------------------------------- ids


@given(
    st.from_regex(r"[a-zA-Z0-9._-]{1,249}", fullmatch=True),
    st.integers(0, 2**31 - 1),
    st.integers(0, 2**63 - 1),
    st.integers(0, 2**53),
)
def test_an_id_is_read_as_it_was_written(topic: str, partition: int, offset: int, timestamp: int) -> None:
    task_id = TaskId(Origin(topic, partition, offset), timestamp)

    assert TaskId.parse(str(task_id)) == task_id
    assert TaskId.parse(str(task_id.origin)) == TaskId(task_id.origin)


def test_an_id_needs_no_quoting_in_a_url() -> None:
    assert str(TaskId(ORIGIN, 17)) == "requests~3~1042~17"


@pytest.mark.parametrize(
    "text",
    ["", "x", "a/b", "a/1/b", "/1/2", "a~1~2", "a~1~2~x", "a~1~-2~3", "a/1/2/3", "a~~~", "a/1/٣", f"a/1/{2**63}"],
)
def test_an_invalid_id_is_refused(text: str) -> None:
    with pytest.raises(InvalidIdError, match="is no id of a request"):
        TaskId.parse(text)


def test_a_failure_survives_pickling() -> None:
    failed = worker.TaskFailed("EXPIRED", "DeadlinePassed", "too late", ORIGIN)

    again = pickle.loads(pickle.dumps(failed))

    assert (again.outcome, again.error_type, again.message, again.origin) == failed.args
    assert str(again) == "request requests/3/1042 was answered EXPIRED: DeadlinePassed: too late"


# ---------------------------------------------------------------- requests


def test_a_header_name_that_kafka_would_cut_is_refused() -> None:
    with pytest.raises(ValueError, match="must not contain NUL"):
        headers_of({"a\0b": "c"}, None, None)


def test_limits_become_headers() -> None:
    deadline = dt.datetime(2030, 1, 1, tzinfo=dt.UTC)

    assert headers_of([("a", "ä"), ("a", b"\xff")], deadline, 2) == (
        ("a", "ä".encode()),
        ("a", b"\xff"),
        ("x-deadline", b"1893456000.000"),
        ("x-timeout", b"2.000"),
    )
    assert headers_of({"a": "b"}, None, None) == (("a", b"b"),)


@pytest.mark.parametrize(
    ("deadline", "timeout", "message"),
    [
        (dt.datetime(2030, 1, 1), None, "deadline has no time zone"),  # noqa: DTZ001 - the mistake in question
        (float("nan"), None, "deadline must be a number of seconds above 0"),
        (None, 0, "timeout must be a number of seconds above 0, not 0"),
        (None, -1.5, "timeout must be"),
        (None, True, "timeout must be a number of seconds, not bool"),
        (None, "5", "timeout must be a number of seconds, not str"),
    ],
)
def test_wrong_limits_are_named(deadline: Any, timeout: Any, message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        headers_of((), deadline, timeout)


def test_a_payload_that_is_not_a_str_is_refused() -> None:
    with pytest.raises(TypeError, match=r"payload must be a str, not dict: use json\.dumps"):
        payload_text({"a": 1})


# ---------------------------------------------------------------- futures


def test_a_cancelled_future_ignores_an_answer() -> None:
    """The future stays cancelled, and ``wait`` returns it as done."""
    future = TaskFuture()

    assert future.cancel()
    future.answer(b"late")

    assert future.cancelled()
    assert concurrent.futures.wait([future], 0).done == {future}


def test_a_callback_may_cancel_a_cancelled_future_again() -> None:
    future = TaskFuture()
    future.add_done_callback(lambda done: None if done.cancel() else pytest.fail("not cancelled"))

    assert future.cancel()


def test_an_answered_future_cannot_be_cancelled() -> None:
    future = TaskFuture()
    future.answer(b"x")
    future.answer(ValueError("too late"))

    assert not future.cancel()
    assert future.result(0) == b"x"


def test_the_id_cannot_be_cancelled() -> None:
    """Neither the future of the id nor a caller that awaits it in asyncio can cancel it."""
    future = TaskFuture()

    async def give_up() -> None:
        task = AsyncTaskFuture(future, asyncio.get_running_loop())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(task.delivered(), 0.01)

    asyncio.run(give_up())
    assert not future.delivered.cancel()
    future.delivered.set_result("id")
    assert future.id == "id"


def test_an_answer_after_the_end_of_the_loop_is_no_error(caplog: pytest.LogCaptureFixture) -> None:
    future = TaskFuture()

    async def submit() -> AsyncTaskFuture:
        return AsyncTaskFuture(future, asyncio.get_running_loop())

    kept = asyncio.run(submit())
    future.answer(b"late")

    assert not kept.done()
    assert caplog.records == []


# ---------------------------------------------------------------- matching


def a_book(limit: int = 10_000, since_ms: int = 0) -> Book:
    return Book(limit, since_ms)


def test_an_answer_resolves_the_request_of_its_origin() -> None:
    book, future, other = a_book(), TaskFuture(), TaskFuture()
    book.expect(future, ORIGIN, book.mark())
    book.expect(other, ORIGIN._replace(offset=1), book.mark())

    assert book.take(ORIGIN, b"x") == [future]
    assert book.take(ORIGIN, b"x") == []
    assert book.take(ORIGIN._replace(partition=0), b"x") == []


def test_an_answer_may_come_before_the_confirmation() -> None:
    book, mark = a_book(), 1
    book.take(ORIGIN, b"x")
    book.take(ORIGIN, b"second")

    assert book.expect(TaskFuture(), ORIGIN, mark) == (b"x", False)


def test_an_early_answer_that_was_dropped_is_searched_for() -> None:
    """An answer that was dropped before the submit belongs to another request, and causes no search."""
    book = a_book(limit=1000)
    book.take(ORIGIN, b"x" * 600)
    book.take(ORIGIN._replace(offset=1), b"x" * 600)
    late = book.mark()

    assert book.expect(TaskFuture(), ORIGIN, mark=1) == (None, True)
    assert book.expect(TaskFuture(), ORIGIN._replace(offset=2), late) == (None, False)


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 2000)), max_size=50))
def test_the_newest_answers_are_kept_up_to_a_limit(answers: list[tuple[int, int]]) -> None:
    """If an answer is read twice, the last time counts."""
    book = a_book(limit=5000)
    first: dict[int, bytes] = {}
    for offset, size in answers:
        value = b"x" * size
        book.take(Origin("t", 0, offset), value)
        value = first[offset] = first.pop(offset, value)
        while sum(len(one) + 300 for one in first.values()) > 5000:
            del first[next(iter(first))]

    kept = {n: book.find(TaskId(Origin("t", 0, n)), TaskFuture()).answer for n in range(21)}
    assert {n: value for n, value in kept.items() if value is not None} == first


def test_several_calls_may_wait_for_one_answer() -> None:
    """Only the first call searches earlier answers. A call that times out does not end the others."""
    book, futures = a_book(since_ms=2 * HOUR), [TaskFuture() for _ in range(3)]

    found = [book.find(TaskId(ORIGIN, HOUR), future) for future in futures]
    book.forget(ORIGIN, futures[1])

    assert found == [(None, True), (None, False), (None, False)]
    assert book.waits([ORIGIN])
    assert book.take(ORIGIN, b"x") == [futures[0], futures[2]]
    assert not book.waits([ORIGIN])


def test_earlier_answers_are_searched_once() -> None:
    """A search for an id from before the client covers later ids too, until answers are dropped."""
    book = a_book(limit=1000, since_ms=2 * HOUR)
    ids = [TaskId(ORIGIN._replace(offset=n), HOUR + n) for n in range(4)]

    assert book.find(ids[0], TaskFuture()).behind
    book.covered(ids[0].timestamp_ms - CLOCK_SKEW_MS, book.mark())
    assert not book.find(ids[1], TaskFuture()).behind
    assert book.find(TaskId(ORIGIN._replace(offset=9), HOUR - 1), TaskFuture()).behind
    for number in range(2):
        book.take(Origin("other", 0, number), b"x" * 600)
    assert book.find(ids[2], TaskFuture()).behind


def test_an_answer_that_was_read_again_counts_as_new() -> None:
    """A search reads answers that are kept already. When one of them is dropped, the search no longer counts."""
    book = a_book(limit=1000, since_ms=2 * HOUR)
    book.take(ORIGIN, b"x" * 600)
    mark = book.mark()
    book.take(ORIGIN, b"x" * 600)
    book.covered(0, mark)
    book.take(Origin("other", 0, 0), b"x" * 600)

    assert book.find(TaskId(ORIGIN, HOUR), TaskFuture()).behind
