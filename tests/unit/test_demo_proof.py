"""The demo's proof must fail on whatever is not one right answer per request."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

import pytest

from examples.make_configurations import IMPOSSIBLE
from examples.proof import Evidence, complaints
from worker.codec import DEAD_LETTERED, FAILED, OK, Response

if TYPE_CHECKING:
    from collections.abc import Callable

GOOD, BAD = ("trainings", 0, 0), ("trainings", 1, 5)


@pytest.fixture
def evidence() -> Evidence:
    """One possible configuration with a result, one impossible one in the dead letters."""
    return Evidence(
        requests={GOOD: {"dataset": "iris", "model": "knn", "params": {}}, BAD: copy.deepcopy(IMPOSSIBLE[0])},
        answers={GOOD: [Response(outcome=OK)], BAD: [Response(outcome=DEAD_LETTERED)]},
        letters=[BAD],
    )


def test_one_right_answer_each_is_proof(evidence: Evidence) -> None:
    """Nothing to complain about."""
    assert complaints(evidence) == []


@pytest.mark.parametrize(
    ("spoil", "complaint"),
    [
        (lambda e: e.answers.pop(GOOD), "1 requests without an answer: [('trainings', 0, 0)]"),
        (lambda e: e.answers.update({("other", 0, 0): [Response(outcome=OK)]}), "1 answers to what was never asked"),
        (lambda e: e.answers[GOOD].append(Response(outcome=OK)), "1 requests answered more than once"),
        (
            lambda e: e.answers.update({GOOD: [Response(outcome=FAILED)]}),
            "1 possible configurations without a result",
        ),
        (
            lambda e: e.answers.update({BAD: [Response(outcome=OK)]}),
            "1 impossible configurations that were not dead-lettered",
        ),
        (lambda e: e.letters.clear(), "1 dead-letter answers without a dead letter, or the reverse"),
        (lambda e: e.letters.append(GOOD), "1 dead-letter answers without a dead letter, or the reverse"),
        (lambda e: e.letters.append(BAD), "1 requests with more than one dead letter"),
    ],
)
def test_every_fault_is_named(evidence: Evidence, spoil: Callable[[Evidence], object], complaint: str) -> None:
    """Each way to be wrong has its complaint."""
    spoil(evidence)

    assert any(found.startswith(complaint) for found in complaints(evidence))
