"""The values of the header ``x-deadline``."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.core.expiry import DeadlineError, deadline_of

NOON = 1_795_262_400.0  # 2026-11-21T12:00:00Z


def read(text: str | bytes | None, *more: tuple[str, bytes | None]) -> float | None:
    return deadline_of((*more, ("x-deadline", text.encode() if isinstance(text, str) else text)))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1795262400", NOON),
        ("1795262400.25", NOON + 0.25),
        (" 1795262400\n", NOON),
        ("0", 0.0),
        ("-1", -1.0),
        ("2026-11-21T12:00:00Z", NOON),
        ("2026-11-21t12:00:00z", NOON),  # RFC 3339 allows lower case
        ("2026-11-21 12:00:00Z", NOON),
        ("2026-11-21T12:00:00+00:00", NOON),
        ("2026-11-21T12:00:00-00:00", NOON),
        ("2026-11-21T17:45:00+05:45", NOON),
        ("2026-11-21T04:00:00.5-08:00", NOON + 0.5),
        ("2026-11-21T12:00:00.123456789Z", NOON + 0.123456),
        ("2016-12-31T23:59:60Z", 1_483_228_800.0),  # a leap second, which RFC 3339 allows
        ("0001-01-01T00:00:00+14:00", -62_135_647_200.0),
        ("9999-12-31T23:59:59-14:00", 253_402_351_199.0),
    ],
)
def test_a_deadline_is_a_number_of_seconds_or_an_rfc_3339_time(text: str, expected: float) -> None:
    assert read(text) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(
    "text",
    ["", "tomorrow", "nan", "12:00", "2026-11-21", "2026-11-21T12:00:00", "2026-13-01T00:00:00Z", b"\xff\xfe", None],
)
def test_a_deadline_that_is_not_a_time_is_an_error(text: str | bytes | None) -> None:
    with pytest.raises(DeadlineError, match="x-deadline"):
        read(text)


def test_the_error_for_a_very_long_deadline_is_short() -> None:
    with pytest.raises(DeadlineError) as raised:
        read("x" * 100_000)
    assert len(str(raised.value)) < 300


def test_a_request_without_the_header_has_no_deadline() -> None:
    assert deadline_of(()) is None
    assert deadline_of((("deadline", b"5"), ("X-Deadline", b"5"))) is None


def test_the_last_deadline_header_counts() -> None:
    assert read("5", ("x-deadline", b"nonsense"), ("other", None)) == 5


@given(st.datetimes(timezones=st.timezones() | st.just(dt.UTC), allow_imaginary=False))
def test_a_time_in_any_time_zone_is_read(moment: dt.datetime) -> None:
    zone = moment.utcoffset()
    if zone is not None and not zone.seconds % 60:
        assert read(moment.isoformat()) == moment.timestamp()


@given(st.text() | st.binary())
def test_any_header_value_is_a_number_or_a_deadline_error(text: str | bytes) -> None:
    """No value raises another exception or gives NaN."""
    value = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    try:
        found = deadline_of((("x-deadline", value),))
    except DeadlineError:
        return
    assert found is not None
    assert not math.isnan(found)
