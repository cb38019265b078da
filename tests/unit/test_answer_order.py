"""An answer waits behind an earlier one of its partition or key that has to wait."""

from __future__ import annotations

import pytest

from tests.unit.support import a_task
from worker.core.ordering_group import OrderingGroup
from worker.process.answer_order import AnswerOrder


def an_order(ordering: str = "partition") -> AnswerOrder[str]:
    return AnswerOrder(ordering)


def test_no_answer_is_held_while_no_task_waits() -> None:
    order = an_order()
    assert (order.held, order.rows) == (0, {})
    assert not order.hold(a_task(), "answer")
    assert not list(order.ready())


def test_later_answers_are_held_until_the_waiting_one_is_ready() -> None:
    order, (first, second, third) = an_order(), [a_task(offset=offset) for offset in (1, 2, 3)]
    order.wait(first)
    assert order.hold(second, "second")
    assert order.hold(third, "third")
    assert not list(order.ready())
    assert order.held == 2
    assert order.hold(first, "first")
    assert list(order.ready()) == ["first", "second", "third"]
    assert (order.held, order.rows) == (0, {})


def test_several_waiting_answers_keep_their_order() -> None:
    order, (first, second, third) = an_order(), [a_task(offset=offset) for offset in (1, 2, 3)]
    order.wait(first)
    order.wait(second)
    order.hold(third, "third")
    order.hold(second, "second")
    assert not list(order.ready())
    order.hold(first, "first")
    assert list(order.ready()) == ["first", "second", "third"]


def test_a_dropped_answer_no_longer_holds_back_later_ones() -> None:
    order, (first, second) = an_order(), [a_task(offset=offset) for offset in (1, 2)]
    order.wait(first)
    order.hold(second, "second")
    order.drop(first)
    assert list(order.ready()) == ["second"]
    assert (order.held, order.rows) == (0, {})


def test_an_answer_that_has_to_wait_at_its_turn_keeps_its_place() -> None:
    """The second answer is too large, so a dead letter is produced before it."""
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


def test_an_answer_that_is_dropped_at_its_turn_does_not_stop_the_next_one() -> None:
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
def test_an_answer_waits_only_for_others_of_its_ordering_group(
    ordering: str, other_key: bytes | None, *, held: bool
) -> None:
    order = an_order(ordering)
    order.wait(a_task(offset=1))
    assert order.hold(a_task(offset=2, key=other_key), "other") is held


def test_tasks_without_a_key_have_no_order() -> None:
    order = an_order("key")
    order.wait(a_task(key=None))
    assert (order.held, order.rows) == (0, {})


def test_answers_keep_their_order_when_tasks_get_a_new_ordering_group() -> None:
    """A task gets a new group after it was detached, or after its key was idle."""
    order, first, second = an_order("key"), a_task(offset=1), a_task(offset=2)
    first.group = OrderingGroup()
    order.wait(first)
    first.group = second.group = OrderingGroup()
    order.hold(second, "second")
    order.hold(first, "first")
    assert list(order.ready()) == ["first", "second"]
