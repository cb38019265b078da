"""A process killed at each point of a request's path, under each guarantee, and what the user sees afterwards."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.kafka.faults import faulty
from tests.kafka.faults.effects import EFFECTS, prepare, rows_of
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Sent

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(240)]

# More than a second: such a task starts alone, and its start limit is committed before.
NAP = '{"do": "nap", "seconds": 1.1}'


class Seen(NamedTuple):
    """The expected observations of the request with which the process was killed."""

    committed: int  # committed offset of its partition after the kill
    starts: int  # starts of its handler
    attempts: tuple[list[int], ...]  # attempts in its answers: one of these lists
    lost: int = 0  # lost tasks that are counted


ONCE, AGAIN, NONE = [1], [2], list[int]()
EXPECTED = {
    ("at-least-once", "before_start"): Seen(0, 1, (AGAIN,)),
    ("at-least-once", "in_task"): Seen(0, 2, (AGAIN,)),
    ("at-least-once", "after_produce"): Seen(0, 2, (AGAIN, [1, 2])),
    ("at-least-once", "after_delivery"): Seen(0, 2, ([1, 2],)),
    ("at-least-once", "after_commit"): Seen(1, 1, (ONCE,)),
    ("exactly-once", "before_start"): Seen(0, 1, (AGAIN,)),
    ("exactly-once", "in_task"): Seen(0, 2, (AGAIN,)),
    ("exactly-once", "after_produce"): Seen(0, 2, (AGAIN,)),
    ("exactly-once", "after_delivery"): Seen(0, 2, (AGAIN,)),
    ("exactly-once", "after_commit"): Seen(1, 1, (ONCE,)),
    ("at-most-once", "before_start"): Seen(1, 0, (NONE,), 1),
    ("at-most-once", "in_task"): Seen(1, 1, (NONE,), 1),
    ("at-most-once", "after_produce"): Seen(1, 1, (NONE, ONCE), 1),
    # It is answered, but no commit has recorded that. Tasks that may be lost are counted.
    ("at-most-once", "after_delivery"): Seen(1, 1, (ONCE,), 1),
    ("at-most-once", "after_commit"): Seen(1, 1, (ONCE,)),
    # When the task has finished, the store has its result, offset and row. Answers are at-least-once.
    ("store", "in_task"): Seen(0, 2, (AGAIN,)),
    ("store", "finished"): Seen(0, 2, (AGAIN,)),
    ("store", "after_produce"): Seen(0, 1, (ONCE, [1, 1])),
    ("store", "after_delivery"): Seen(0, 1, ([1, 1],)),
    ("store", "after_commit"): Seen(1, 1, (ONCE,)),
}


def scenario(guarantee: str, point: str) -> Scenario:
    """Return the scenario of one row of ``EXPECTED``."""

    def play(site: Callable[..., Site]) -> None:
        expected = EXPECTED[guarantee, point]
        if guarantee == "store":
            one = faulty.small_site(site, "exactly-once", **EFFECTS)
            url = f"sqlite:///{one.folder / 'store.db'}"
            prepare(url)
            kill(one, point, expected, WORKER_STORE_URL=url)
            assert rows_of(url) == sorted(sent[1:3] for sent in one.sent)
        else:
            kill(faulty.small_site(site, guarantee), point, expected)

    play.__name__ = f"{guarantee}-{point}"
    return play


def kill(one: Site, point: str, expected: Seen, **variables: str) -> None:
    """Kill the process with one request only. Another one is answered before, and more are submitted afterwards."""
    neighbours = one.submit([task(1, NAP, partition=1)])
    replica = faulty.start(one, point, **variables)
    one.wait_answered()
    one.wait_committed()
    (first,) = one.submit([task(0, NAP, partition=0)])
    victim = faulty.struck(one)
    until(lambda: victim not in replica.pids(), one.tails)
    assert one.committed() == ({0: 1, 1: 1} if expected.committed else {1: 1})
    neighbours += one.submit([task(2, NAP, partition=0), task(3, NAP, partition=1)])
    one.wait_answered(neighbours if NONE in expected.attempts else None)
    one.wait_committed()
    faulty.wait_lost(one, expected.lost, 20)
    assert faulty.named_as_lost(one) == ({(0, 0)} if expected.lost else set())
    one.stop()
    check(one, first, neighbours, expected)


def check(one: Site, first: Sent, neighbours: list[Sent], expected: Seen) -> None:
    """Check the starts, and the answers that readers of committed records see."""
    places = Counter([sent[1:3] for sent in neighbours]) + Counter({first[1:3]: expected.starts})
    assert one.journal.starts() == places, one.tails()
    one.answers.read_all()
    for neighbour in neighbours:
        answer = one.answer_to(neighbour)
        assert (answer.outcome, answer.response.attempt) == ("OK", 1)
    answers = [answer for answer in one.answers.records if answer.origin == first[:3]]
    assert {answer.outcome for answer in answers} <= {"OK"}
    assert [answer.response.attempt for answer in answers] in expected.attempts, one.tails()


SCENARIOS = [scenario(*row) for row in EXPECTED]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_kill_points(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
