"""With WORKER_EXTRA_SLOTS, other requests do not wait behind a long task of the only process."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.kafka.support.topics import task
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Sent

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(200)]

LONG_SECONDS, LONG_AFTER, SHORTS = (40, 3.0, 200) if LONG else (15, 3.0, 100)
SHORT = '{"do": "nap", "seconds": 0.02}'
VARIABLES = {
    "WORKER_ISOLATION": "process",
    "WORKER_EXTRA_SLOTS": "1",
    "WORKER_LONG_AFTER": f"{LONG_AFTER}s",
    "WORKER_HANDLER_KWARGS": "{}",
}


def started_and_ended(one: Site, sent: Sent) -> tuple[float, float]:
    """Return the start and the end of the answered attempt, in seconds since the epoch."""
    response = one.answer_to(sent).response
    return response.started_at.ToNanoseconds() / 1e9, response.finished_at.ToNanoseconds() / 1e9


@pytest.mark.parametrize(
    ("guarantee", "ordering"),
    [("exactly-once", "unordered"), ("at-least-once", "partition"), ("at-most-once", "key")],
)
def test_short_requests_overtake_a_long_one(site: Callable[..., Site], guarantee: str, ordering: str) -> None:
    """Those that must not overtake it wait for it. Each request is answered once."""
    one = site(partitions=8, WORKER_GUARANTEE=guarantee, WORKER_ORDERING=ordering, **VARIABLES)
    replica = one.start().wait_ready()
    (long,) = one.submit([task(0, f'{{"do": "nap", "seconds": {LONG_SECONDS}}}', key=b"k0", partition=0)])
    submitted = time.time()
    shorts = one.submit(task(at, SHORT, key=b"k%d" % (at % 8), partition=at % 8) for at in range(1, SHORTS + 1))
    one.wait_answered()
    _, end = started_and_ended(one, long)
    free = shorts if ordering == "unordered" else [sent for sent in shorts if sent.partition]
    last = max(started_and_ended(one, sent)[1] for sent in free)
    assert last < end, "they have waited for the long task"
    took = last - submitted - LONG_AFTER
    assert took < 5 + SHORTS * 0.01, f"{took:.2f} s for {len(free)} tasks of 20 ms\n{replica.tail()}"
    waited = [sent for sent in shorts if sent not in free]
    assert all(started_and_ended(one, sent)[0] > end for sent in waited), "it was overtaken"
    one.finish()


def test_as_many_tasks_run_beside_a_long_one_as_there_are_extra_slots(site: Callable[..., Site]) -> None:
    """There are two extra slots. Both are used, and no more tasks run."""
    one = site(partitions=5, **VARIABLES | {"WORKER_EXTRA_SLOTS": "2"})
    one.start().wait_ready()
    (long,) = one.submit([task(0, '{"do": "nap", "seconds": 15}', partition=0)])
    others = one.submit(task(at, '{"do": "nap", "seconds": 2}', partition=at) for at in range(1, 5))
    one.wait_answered()
    times = [started_and_ended(one, sent) for sent in (long, *others)]
    running = [sum(first <= start < end for first, end in times) for start, _ in times]
    assert max(running) == 3, f"tasks that run at each start: {running}"
    assert max(end for _, end in times[1:]) < times[0][1], "they have waited for the long task"
    one.finish()
