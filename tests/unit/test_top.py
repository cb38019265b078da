"""``worker top``: rates of progress, and a page that fits the terminal."""

from __future__ import annotations

import dataclasses
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from tests.unit.fake_topics import FakeTopics
from tests.unit.task_states import NOW, run, state, write
from worker.cli import top
from worker.cli.tasks import lines_of
from worker.cli.top_page import left_text, page, rate_text, view_of
from worker.cli.top_rates import UNKNOWN, Rates
from worker.core.task_state import WAITING, Origin, TaskState

# ---------------------------------------------------------------- rates


def later(known: TaskState, seconds: float, progress: float | None) -> TaskState:
    return dataclasses.replace(known, updated_ns=known.updated_ns + int(seconds * 1e9), progress=progress)


def test_the_rate_of_the_first_start_is_measured_from_its_beginning() -> None:
    """One record is enough. Half of the task took 100 seconds."""
    rates = Rates()
    rates.add(state(age=100, seen=0, progress=0.5))

    estimate = rates.of(Origin("requests", 3, 1042), NOW + 10)

    assert estimate.rate == pytest.approx(0.005)
    assert estimate.left == pytest.approx(90)


def test_a_report_right_after_the_start_gives_no_rate() -> None:
    """Half of the task in a millisecond would be 50,000 % a second."""
    rates, first = Rates(), state(age=0.001, seen=0, progress=0.5)
    rates.add(first)
    assert rates.of(first.origin, NOW + 10) == UNKNOWN

    rates.add(later(first, 50, 0.75))

    assert rates.of(first.origin, NOW + 50).rate == pytest.approx(0.015, rel=0.01)


def test_the_rate_of_a_later_start_needs_two_reports() -> None:
    """One report says nothing about the rate, because the start may have resumed from a checkpoint at 90 %."""
    rates, first = Rates(), state(epoch=2, seen=0, progress=0.9)
    rates.add(first)
    assert rates.of(first.origin, NOW) == UNKNOWN

    rates.add(later(first, 10, 0.92))

    assert rates.of(first.origin, NOW + 10).rate == pytest.approx(0.002)
    assert rates.of(first.origin, NOW + 10).left == pytest.approx(40)


def test_heartbeats_without_progress_do_not_change_the_rate() -> None:
    rates, first = Rates(), state(age=100, seen=0, progress=0.5)
    rates.add(first)
    rates.add(later(first, 30, 0.5))

    assert rates.of(first.origin, NOW + 30).rate == pytest.approx(0.005)
    assert rates.of(first.origin, NOW + 500).left == 0.0


def test_the_rate_is_measured_again_after_another_start() -> None:
    """The progress of the previous start is lost, or is in a checkpoint."""
    rates, first = Rates(), state(age=100, seen=0, progress=0.5)
    rates.add(first)
    rates.add(dataclasses.replace(later(first, 60, 0.8), epoch=2))

    assert rates.of(first.origin, NOW + 60) == UNKNOWN


def test_a_task_without_progress_has_no_rate() -> None:
    rates = Rates()
    rates.add(state())
    assert rates.of(state().origin, NOW) == UNKNOWN
    assert rates.of(Origin("requests", 9, 9), NOW) == UNKNOWN


@pytest.mark.parametrize(
    ("rate", "text"),
    [(None, "-"), (0.05, "5%/s"), (0.001, "6%/min"), (0.0001, "36%/h"), (0.0000001, "0.036%/h"), (0.123, "12%/s")],
)
def test_rates_have_a_readable_scale(rate: float | None, text: str) -> None:
    assert rate_text(rate) == text


# ---------------------------------------------------------------- worker top


def lines(states: list[TaskState], width: int = 80, height: int = 40) -> list[str]:
    rates = Rates()
    for one in states:
        rates.add(one)
    return page(view_of("workers", states, rates, NOW, "21:46:10"), width, height).plain.split("\n")


def test_a_narrow_page_has_the_message_below_the_task() -> None:
    shown = lines([state(progress=0.5, seen=0, message="epoch 1\nof 2"), state("requests/0/1", seen=45)])

    assert shown[0] == "group workers, 2 long tasks, 1 silent, 21:46:10"
    assert shown[2].startswith("requests/0/1 ")
    assert shown[3] == "  silent: no heartbeat for 45 s"
    assert shown[4].startswith("requests/3/1042 ")
    assert shown[4].endswith("50%  30%/min    1:40")
    assert shown[5] == "  epoch 1 of 2"
    assert shown[6].startswith("total")


def test_a_wide_page_has_columns_for_key_and_message() -> None:
    shown = lines([state(progress=0.5, key=b"img-0269", message="epoch 1 of 2")], width=160)

    assert len(shown) == 4
    assert "img-0269" in shown[2]
    assert shown[2].endswith("epoch 1 of 2")


def test_a_very_narrow_page_still_shows_when_a_task_ends() -> None:
    """The page omits the worker and the attempt."""
    shown = lines([state(progress=0.5, seen=0, message="epoch 1")], width=60)

    assert "WORKER" not in shown[1]
    assert shown[1].endswith("RATE    LEFT")
    assert shown[2].endswith("50%  30%/min    1:40")


@pytest.mark.parametrize("width", [60, 78, 140])
def test_a_long_group_name_is_cut_so_that_counts_and_clock_are_shown(width: int) -> None:
    view = view_of("a-group-with-a-rather-long-name" * 5, [state(), state(state=WAITING)], Rates(), NOW, "21:46:10")
    head, *_ = page(view, width, 24).plain.split("\n")

    assert head.startswith("group a-group-")
    assert head.endswith("…, 1 long task, 1 waiting, 21:46:10")
    assert len(head) == width


def test_a_long_origin_keeps_partition_and_offset() -> None:
    (_, _, shown, _) = lines([state("a-topic-with-a-long-name/11/99012345")])
    assert "…/11/99012345 " in shown


def test_tasks_that_do_not_fit_are_counted() -> None:
    shown = lines([state(f"requests/0/{number}") for number in range(20)], height=10)

    assert len(shown) == 10
    assert shown[-2] == "and 14 more tasks"


def test_without_a_running_task_the_page_is_one_line() -> None:
    assert lines([state(state=WAITING)]) == ["group workers, no long task, 1 waiting, 21:46:10"]


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=60)


@given(
    origin=st.tuples(st.text("ab.-", min_size=1, max_size=249), st.integers(0, 999), st.integers(0, 2**63 - 1)),
    worker=st.text("ab0-", min_size=1, max_size=120),
    message=texts,
    key=texts,
    progress=st.none() | st.floats(0, 1),
    age=st.floats(0, 1e9),
    width=st.integers(40, 250),
    height=st.integers(6, 60),
)
def test_no_line_is_wider_than_the_terminal(
    origin: tuple[str, int, int],
    worker: str,
    message: str,
    key: str,
    progress: float | None,
    age: float,
    width: int,
    height: int,
) -> None:
    """This applies to any content. The page is not taller than the terminal, either."""
    one = state(
        "/".join(map(str, origin)), worker=worker, message=message, key=key.encode(), progress=progress, age=age
    )

    shown = lines([one, state()], width, height)

    assert max(map(cell_len, shown)) <= width
    assert len(shown) <= height


@pytest.mark.parametrize("width", [80, 160])
def test_the_table_fits_the_terminal_if_the_origins_fit(width: int) -> None:
    long_one = state(worker="w" * 200, message="m" * 500, key=b"k" * 300, progress=0.3)
    assert max(line.cell_len for line in lines_of([long_one, state()], NOW, width)) <= width


def test_top_prints_one_page_if_there_is_no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    topics = FakeTopics()
    write(topics, state(progress=0.5, message="half"))

    out = run(top, topics, monkeypatch)

    assert "requests/3/1042" in out
    assert "total" in out


def test_an_end_too_far_in_the_future_is_not_estimated() -> None:
    """With almost no progress, the remaining time may be infinite or too large to show."""
    assert [left_text(left) for left in (math.inf, 1e300, 90.0, 0.5, None)] == ["-", "-", "1:30", "due", "-"]
