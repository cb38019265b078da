"""The demo's own checks must fail unless there is exactly one right answer per request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from examples.make_configurations import IMPOSSIBLE, configurations
from examples.proof import problems

if TYPE_CHECKING:
    from collections.abc import Callable

    from examples.findings import Row

TABLE = configurations()
BAD = TABLE.index(IMPOSSIBLE[0])
GOOD = next(number for number, configuration in enumerate(TABLE) if configuration not in IMPOSSIBLE)


@pytest.fixture
def rows() -> list[Row]:
    """Return one right answer for each request."""
    return [
        {"sequence": number, "outcome": "DEAD_LETTERED" if configuration in IMPOSSIBLE else "OK"}
        for number, configuration in enumerate(TABLE)
    ]


def test_one_right_answer_per_request_passes(rows: list[Row]) -> None:
    assert problems(rows, len(TABLE)) == []


def _change(number: int, outcome: str) -> Callable[[list[Row]], None]:
    return lambda rows: rows[number].update(outcome=outcome)


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda rows: rows.pop(GOOD), "without an answer"),
        (lambda rows: rows.append({"sequence": len(TABLE), "outcome": "OK"}), "unknown requests"),
        (lambda rows: rows.append(rows[GOOD]), "more than once"),
        (_change(GOOD, "DEAD_LETTERED"), "without a result"),
        (_change(GOOD, "FAILED"), "without a result"),
        (_change(BAD, "OK"), "not dead-lettered"),
    ],
)
def test_any_other_set_of_answers_fails(rows: list[Row], spoil: Callable[[list[Row]], None], complaint: str) -> None:
    spoil(rows)
    assert any(complaint in one for one in problems(rows, len(TABLE)))
