"""Answers wait behind an earlier one of their partition or key that has to wait."""

from __future__ import annotations

import pytest

from tests.unit.support import a_task
from worker.core.ordering_group import OrderingGroup
from worker.process.answer_order import AnswerOrder


def an_order(ordering: str = "partition") -> AnswerOrder[str]:
    return AnswerOrder(ordering)


def test_nothing_is_held_as_long_as_nothing_waits() -> None:
    order = an_order()
    assert (order.held, order.rows) == (0, {})
    assert not order.hold(a_task(), "answer")
    assert not list(order.ready())


def test_later_answers_follow_the_one_that_waits() -> None:
    order, (first, second, third) = an_order(), [a_task(offset=offset) for offset in (1, 2, 3)]
    order.wait(first)
    assert order.hold(second, "second")
    assert order.hold(third, "third")
    assert not list(order.ready())
    assert order.held == 2
    assert order.hold(first, "first")
    assert list(order.ready()) == ["first", "second", "third"]
    assert (order.held, order.rows) == (0, {})


def test_several_wait() -> None:
    order, (first, second, third) = an_order(), [a_task(offset=offset) for offset in (1, 2, 3)]
    order.wait(first)
    order.wait(second)
    order.hold(third, "third")
    order.hold(second, "second")
    assert not list(order.ready())
    order.hold(first, "first")
    assert list(order.ready()) == ["first", "second", "third"]


def test_an_answer_that_will_not_come_holds_nothing_back() -> None:
    order, (first, second) = an_order(), [a_task(offset=offset) for offset in (1, 2)]
    order.wait(first)
    order.hold(second, "second")
    order.drop(first)
    assert list(order.ready()) == ["second"]
    assert (order.held, order.rows) == (0, {})


def test_an_answer_that_has_to_wait_when_its_turn_comes_keeps_its_place() -> None:
    """It was too large, so a dead letter goes first."""
    order, (first, second, third) = an_order(), [a_task(offset=offset) for offset in (1, 2, 3)]
    order.wait(first)
    order.hold(second, "too large")
    order.hold(third, "third")
    order.hold(first, "first")
    sent = []
    for answer in order.ready():
        if answer == "too large":
            order.wait(second)
        else:
            sent.append(answer)
    assert sent == ["first"]
    order.hold(second, "second")
    assert list(order.ready()) == ["second", "third"]
    assert (order.held, order.rows) == (0, {})


def test_an_answer_that_is_dropped_when_its_turn_comes() -> None:
    order, (first, second, third) = an_order(), [a_task(offset=offset) for offset in (1, 2, 3)]
    order.wait(first)
    order.hold(second, "second")
    order.hold(third, "third")
    order.drop(first)
    seen = []
    for answer in order.ready():
        seen.append(answer)
        order.drop(second if answer == "second" else third)
    assert seen == ["second", "third"]
    assert (order.held, order.rows) == (0, {})


@pytest.mark.parametrize(
    ("ordering", "other_key", "held"),
    [
        *(("partition", b"other", True), ("partition", None, True), ("key", b"k", True)),
        *(("key", b"other", False), ("key", None, False), ("unordered", b"k", False)),
    ],
)
def test_only_what_is_in_order_waits(ordering: str, other_key: bytes | None, *, held: bool) -> None:
    order = an_order(ordering)
    order.wait(a_task(offset=1))
    assert order.hold(a_task(offset=2, key=other_key), "other") is held


def test_tasks_without_a_key_have_no_order() -> None:
    order = an_order("key")
    order.wait(a_task(key=None))
    assert (order.held, order.rows) == (0, {})


def test_a_task_whose_group_was_exchanged_finds_its_place() -> None:
    """As after it was detached, or after its key was idle."""
    order, first, second = an_order("key"), a_task(offset=1), a_task(offset=2)
    first.group = OrderingGroup()
    order.wait(first)
    first.group = second.group = OrderingGroup()
    order.hold(second, "second")
    order.hold(first, "first")
    assert list(order.ready()) == ["first", "second"]
