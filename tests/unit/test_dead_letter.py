"""The content of a dead letter. ``test_dlq_show`` and ``test_replay`` test the commands that read dead letters."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.support import PARTITION, a_task
from worker.core.model import Failure
from worker.process.dead_letters import MESSAGE_LIMIT, dead_letter, size_of, without_value

LIMIT = 10_000
FAILURE = Failure("ValueError", "no such thing", "Traceback …")

contents = st.none() | st.binary(max_size=20)
header_lists = st.lists(st.tuples(st.text(max_size=5), contents), max_size=4).map(tuple)


@given(key=contents, value=contents, headers=header_lists)
def test_the_original_is_kept_byte_for_byte(
    key: bytes | None, value: bytes | None, headers: tuple[tuple[str, bytes | None], ...]
) -> None:
    """This holds for key, value and headers, also for null and repeated names. The worker's headers come last."""
    record = dead_letter(a_task(value, key=key, headers=headers), FAILURE, LIMIT)
    assert (record.key, record.value) == (key, value)
    assert record.headers[: len(headers)] == headers


def test_a_dead_letter_has_its_origin_and_its_error() -> None:
    record = dead_letter(a_task(attempt=3), FAILURE, LIMIT)
    assert record.headers == (
        ("x-origin-topic", PARTITION.topic.encode()),
        ("x-origin-partition", b"3"),
        ("x-origin-offset", b"42"),
        ("x-attempts", b"3"),
        ("x-error-type", b"ValueError"),
        ("x-error-message", b"no such thing"),
    )


@given(few=st.text(min_size=1, max_size=4), times=st.integers(min_value=MESSAGE_LIMIT // 16, max_value=MESSAGE_LIMIT))
def test_a_long_message_is_cut_between_characters(few: str, times: int) -> None:
    """The header stays valid UTF-8."""
    message = few * times
    content = dict(dead_letter(a_task(), Failure("E", message), LIMIT).headers)["x-error-message"]
    assert content is not None
    assert len(content) <= MESSAGE_LIMIT
    assert message.encode(errors="replace").decode().startswith(content.decode())
    assert len(content) > MESSAGE_LIMIT - 4 or content == message.encode(errors="replace")


@pytest.mark.parametrize("room", [-1000, -1, 0, 1, 1000])
def test_a_dead_letter_loses_its_value_only_if_it_does_not_fit(room: int) -> None:
    """A header says so. The whole request is still at its origin."""
    task = a_task(b"v" * 2_000, key=b"k", headers=(("h", b"x"),))
    whole = dead_letter(task, FAILURE, 10**9)
    record = dead_letter(task, FAILURE, size_of(*whole) + room)
    if room >= 0:
        assert record == whole
    else:
        assert record == without_value(whole)
        assert (record.key, record.value) == (b"k", None)
        assert record.headers[-1] == ("x-value-dropped", b"too large for this topic")
        assert record.headers[0] == ("h", b"x")
