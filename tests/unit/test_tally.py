"""Counting answers by origin."""

from __future__ import annotations

import pytest

from worker.cli.tally import Tally, ranges
from worker.cli.waiting import summary
from worker.core.model import Partition

P0, P1 = Partition("requests", 0), Partition("requests", 1)


@pytest.fixture
def tally() -> Tally:
    """Expect three requests. A request of another sender lies between them."""
    tally = Tally()
    tally.expect(P0, 100)
    tally.expect(P0, 103)
    tally.expect(P1, 7)
    return tally


def test_each_request_is_open_until_its_first_answer(tally: Tally) -> None:
    """Answers are matched by origin, whatever their order."""
    assert tally.answer(P0, 103, "OK")
    assert tally.answer(P1, 7, "FAILED")

    assert (tally.sent, tally.answered, tally.open, tally.duplicates) == (3, 2, 1, 0)
    assert list(tally.unanswered()) == [(P0, 100)]
    assert tally.outcomes == {"OK": 1, "FAILED": 1}


@pytest.mark.parametrize(
    ("partition", "offset"), [(P0, 99), (P0, 101), (P0, 104), (P1, 0), (Partition("other", 0), 100)]
)
def test_answers_to_other_requests_are_not_counted(tally: Tally, partition: Partition, offset: int) -> None:
    """The others lie before, between or after the expected requests, or in another partition or topic."""
    assert not tally.answer(partition, offset, "OK")

    assert (tally.answered, tally.duplicates) == (0, 0)


def test_duplicates_are_counted_and_do_not_answer_another_request(tally: Tally) -> None:
    """However often one request is answered, the others stay open."""
    for _ in range(300):
        assert tally.answer(P0, 100, "OK")

    assert (tally.answered, tally.open, tally.duplicates) == (1, 2, 299)


def test_the_summary_names_outcomes_duplicates_and_unanswered_requests(tally: Tally) -> None:
    """It mentions every deviation from one answer per request."""
    tally.answer(P0, 100, "OK")
    tally.answer(P0, 100, "OK")

    assert summary(tally) == [
        "1 of 3 requests answered: 1 OK",
        "1 duplicate answer: a request was answered more than once",
        "2 unanswered: requests/0/103, requests/1/7",
    ]


def test_the_summary_names_ten_unanswered_requests_and_counts_the_rest() -> None:
    """It stays short with a million unanswered requests."""
    tally = Tally()
    for offset in range(12):
        tally.expect(P1, offset)

    assert summary(tally)[-1].endswith("requests/1/9 and 2 more")


@pytest.mark.parametrize(
    ("numbers", "text"), [([], ""), ([5], "5"), ([7, 3, 4, 5, 3], "3-5, 7"), ([-1, 0, 1], "-1-1"), ([1, 3], "1, 3")]
)
def test_consecutive_numbers_are_shown_as_one_range(numbers: list[int], text: str) -> None:
    """A thousand failed sequences in a row are one range."""
    assert ranges(numbers) == text
