"""The three orderings: the order of starts, and a crash after requests were answered out of order."""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from chaos import groups
from tests.kafka.support.replica import kill
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(240)]

LIMIT = 4_095  # characters of commit metadata that fit beside an offset


def retry(until_attempt: int, after: float) -> str:
    """Return a payload that asks for another attempt later."""
    return json.dumps({"do": "retry_until", "attempt": until_attempt, "after": after})


def nap(seconds: float) -> str:
    return json.dumps({"do": "nap", "seconds": seconds})


def metadata(one: Site, partition: int = 0) -> str:
    """Return the commit metadata of a partition."""
    client = AdminClient({"bootstrap.servers": one.bootstrap})
    ((_, future),) = client.list_consumer_group_offsets([ConsumerGroupTopicPartitions(one.group)]).items()
    found = {p.partition: p.metadata or "" for p in future.result(30).topic_partitions if p.topic == one.requests}
    return found.get(partition, "").rstrip("\0")


def offsets(one: Site, partition: int = 0) -> list[int]:
    """Return the offset of each start, in order."""
    return [entry.offset for entry in one.journal.entries("start") if entry.partition == partition]


def only_once(one: Site, *but: int) -> None:
    """Check that only these requests of partition 0 started more than once."""
    twice = {place[1] for place, count in one.journal.starts().items() if count > 1}
    assert twice == set(but), one.tails()


# ---------------------------------------------------------------- without crashes


def a_key_keeps_its_order_and_holds_up_no_other(site: Callable[..., Site]) -> None:
    """The first request of key a waits for its next attempt. Meanwhile no other of a starts, and all of b and c do."""
    one = site(partitions=1, WORKER_ORDERING="key")
    rows = [("a", retry(2, 6.0)), *[(key, "go") for _ in range(10) for key in "abc"], ("b", retry(3, 0.5)), ("b", "go")]
    one.submit(task(n, payload, key=key.encode(), partition=0) for n, (key, payload) in enumerate(rows))
    one.start()
    one.finish()
    starts = one.journal.entries("start")
    for key in "abc":
        of_key = [entry.offset for entry in starts if rows[entry.offset][0] == key]
        assert of_key == sorted(of_key), f"key {key} was started in the order {of_key}"
    second = next(at for at, entry in enumerate(starts) if (entry.offset, entry.attempt) == (0, 2))
    before = {rows[entry.offset][0] for entry in starts[1:second]}
    assert before == {"b", "c"}
    others = [entry for entry in starts[:second] if rows[entry.offset][0] != "a"]
    assert len({entry.offset for entry in others}) == len([key for key, _ in rows if key != "a"])
    assert one.answer_to(one.sent[0]).response.attempt == 2


def unordered_tasks_wait_for_nobody(site: Callable[..., Site]) -> None:
    """Requests of the same key do not wait for each other."""
    one = site(partitions=1, WORKER_ORDERING="unordered")
    one.submit(task(n, retry(2, 6.0) if n % 5 == 0 else "go", key=b"same", partition=0) for n in range(25))
    one.start()
    one.finish()
    assert offsets(one)[:25] == list(range(25))
    assert sorted(offsets(one)[25:]) == list(range(0, 25, 5))


def a_partition_waits_for_its_failure(site: Callable[..., Site]) -> None:
    """This is the default ordering, for comparison. No other partition waits."""
    one = site(partitions=2)
    one.submit(task(n, retry(2, 6.0) if n == 0 else "go", partition=0) for n in range(5))
    one.submit(task(n, "go", partition=1) for n in range(5))
    one.start()
    one.finish()
    assert offsets(one) == [0, 0, 1, 2, 3, 4]
    starts = one.journal.entries("start")
    second = next(at for at, entry in enumerate(starts) if (entry.partition, entry.attempt) == (0, 2))
    assert {entry.offset for entry in starts[:second] if entry.partition == 1} == {0, 1, 2, 3, 4}


# ---------------------------------------------------------------- crashes


def what_was_answered_out_of_order_outlives_a_crash(site: Callable[..., Site]) -> None:
    """These requests do not start again and are not answered again, under two guarantees and two orderings."""
    cases = [("at-least-once", "unordered"), ("exactly-once", "key")]
    sites = [site(partitions=1, WORKER_GUARANTEE=guarantee, WORKER_ORDERING=order) for guarantee, order in cases]
    for one in sites:
        groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "6000"})
        waiting = {0, 7, 20}
        one.submit(task(n, retry(3, 600.0) if n in waiting else "go", partition=0) for n in range(30))
        one.submit([task(30, nap(600), partition=0)])
        one.start().wait_ready()
    for one in sites:
        one.wait_running(1)
        (replica,) = one.replicas
        until(lambda one=one: answered_out_of_order(one) == 27, lambda one=one: f"{metadata(one)}\n{one.tails()}")  # type: ignore[misc]
        assert one.committed() == {}
        kill([replica.process.pid])
        replica.process.wait()
        one.start_in_a_hurry()
    for one in sites:
        for number in (0, 7, 20):  # these would still ask for a later attempt
            until(lambda one=one, n=number: one.journal.starts()[0, n] >= 2, one.tails)  # type: ignore[misc]
        one.wait_answered([sent for sent in one.sent if sent.offset not in {0, 7, 20}])
        only_once(one, 0, 7, 20, 30)
        assert set(one.counts().values()) == {1}


def answered_out_of_order(one: Site) -> int:
    """Return how many offsets above the lowest incomplete one the commit metadata record as answered."""
    runs = next((field[1:] for field in metadata(one).split() if field.startswith("d")), "")
    return sum(int(length, 16) for length in runs.split(",")[1::2]) if runs else 0


FOREIGN = {
    "somebody else's": "checkpoint=17;host=x",
    "damaged": "kw1 o0 azz.1",
    "of another offset": "kw1 o63 w5 d1,8",
    "odd runs": "kw1 o0 d1,2,3",
    "negative runs": "kw1 o0 d1,-5",
    "a huge count": f"kw1 o0 w{'f' * 40}",
    "without its offset": "kw1 w5",
    "of an offset that is no number": "kw1 oops",
    "no characters one would expect": "kw1 \u00e9\u2603 o0 w1",
}


def commit(one: Site, places: list[TopicPartition]) -> None:
    """Commit these offsets as another tool would, when the broker is ready."""
    client = Consumer({"bootstrap.servers": one.bootstrap, "group.id": one.group})

    def done() -> bool:
        with contextlib.suppress(KafkaException):
            return all(place.error is None for place in client.commit(offsets=places, asynchronous=False) or [])
        return False

    until(done, "the offsets cannot be committed")
    client.close()


def what_others_have_noted_is_ignored(site: Callable[..., Site]) -> None:
    """The worker warns about foreign commit metadata, and processes all requests."""
    one = site(partitions=len(FOREIGN), WORKER_ORDERING="unordered")
    commit(one, [TopicPartition(one.requests, n, 0, text) for n, text in enumerate(FOREIGN.values())])
    one.submit(task(n, "go", partition=n % len(FOREIGN)) for n in range(10 * len(FOREIGN)))
    replica = one.start()
    one.finish()
    one.started_once()
    ignored = {entry["partition"] for entry in replica.events("commit_metadata.ignored")}
    readable = list(FOREIGN).index("a huge count")  # unusual, but valid
    assert ignored >= {f"{one.requests}[{n}]" for n in range(len(FOREIGN)) if n != readable}, one.tails()


# ---------------------------------------------------------------- more metadata than fits


def separate_failures_stop_new_starts_and_are_got_over(site: Callable[..., Site]) -> None:
    """Every second request fails. Starts stop when the metadata are full. A crash then repeats no answered request."""
    count = 1_000
    one = site(partitions=1, WORKER_ORDERING="unordered", WORKER_PROCESSES="1")
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "6000"})
    one.submit(task(n, retry(2, 40.0) if n % 2 == 0 else "go", partition=0) for n in range(count))
    first = one.start().wait_ready()
    seen: list[int] = []

    def stands_still() -> bool:
        seen.append(len(one.journal.starts()))
        return seen[-1] > 100 and seen[-60:] == seen[-1:] * 60  # more than a second

    until(stands_still, one.tails)
    (started,) = {len(one.journal.starts())}
    print(f"{started} of {count} requests started, {len(metadata(one))} characters noted")  # noqa: T201 - measured
    assert started < count * 3 / 4
    assert LIMIT / 2 < len(metadata(one)) <= LIMIT
    answered = {sent[:3] for sent in one.sent if sent.offset < started and sent.offset % 2}
    until(lambda: set(one.counts()) == answered, lambda: f"{len(one.counts())} of {len(answered)}")
    until(lambda: answered_out_of_order(one) == len(answered), lambda: metadata(one))
    os.kill(first.pids()[0], signal.SIGKILL)
    one.finish(seconds=150)
    assert first.events("commit_metadata.ignored") == []  # what was written can be read
    assert {place: n for place, n in one.journal.starts().items() if place[1] % 2} == dict.fromkeys(
        [(0, n) for n in range(1, count, 2)], 1
    )
    assert max(Counter(offsets(one)).values()) <= 3


SCENARIOS: list[Any] = [
    a_key_keeps_its_order_and_holds_up_no_other,
    unordered_tasks_wait_for_nobody,
    a_partition_waits_for_its_failure,
    what_was_answered_out_of_order_outlives_a_crash,
    what_others_have_noted_is_ignored,
    separate_failures_stop_new_starts_and_are_got_over,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_ordering(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
