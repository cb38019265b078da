"""The starts that count as attempts: those that end with their process do, cancelled ones do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from chaos import groups
from tests.kafka.support.topics import members, reading, task
from tests.kafka.support.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site
    from tests.kafka.support.topics import Sent

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(300)]

SEGFAULT = '{"do": "segfault"}'


def wait_shared(one: Site, count: int) -> None:
    """Wait until the group has ``count`` members, each with a partition."""
    until(
        lambda: (now := members(one.bootstrap, one.group)) and len(now) == count and all(now.values()),
        lambda: f"{members(one.bootstrap, one.group)}\n{one.tails()}",
    )


def outcome_of(one: Site, sent: Sent) -> str:
    """Return the outcome of a request. If it has several answers, all must have the same outcome."""
    (outcome,) = {answer.outcome for answer in one.answers.records if answer.origin == sent[:3]}
    return outcome


def dead_letter_of(one: Site, offset: int) -> dict[str, Any]:
    """Return the headers of the only dead letter of a request."""
    with reading(one.bootstrap, one.dead, one.answer_partitions) as dead_letters:
        found = [dict(dead_letter.headers) for dead_letter in dead_letters.read_all()]
    (dead_letter,) = [headers for headers in found if headers["x-origin-offset"] == str(offset).encode()]
    return dead_letter


def a_request_that_kills_its_process_is_given_up(site: Callable[..., Site]) -> None:
    """A request that kills its process is dead-lettered after three starts. The others of its partition succeed."""
    cases: list[dict[str, str]] = [
        {"KAFKA_GROUP_PROTOCOL": "consumer"},
        {"KAFKA_GROUP_PROTOCOL": "consumer", "WORKER_GUARANTEE": "exactly-once", "WORKER_ORDERING": "key"},
        {"KAFKA_GROUP_PROTOCOL": "classic", "WORKER_REPLICA": "here"},  # a static member
    ]
    sites = [site(partitions=1, WORKER_HANDLER="batches:crash", **variables) for variables in cases]
    for one in sites:
        groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "4000"})
        one.submit(task(n, payload, partition=0) for n, payload in enumerate(["go", SEGFAULT, "go", "go"]))
        one.start()
    for one, variables in zip(sites, cases, strict=True):
        # A request that was answered but not committed may be answered again, except under exactly-once.
        one.finish(twice=[] if "WORKER_GUARANTEE" in variables else one.sent[:1], seconds=150)
        outcomes = [outcome_of(one, sent) for sent in one.sent]
        assert outcomes == ["OK", "DEAD_LETTERED", "OK", "OK"], variables
        dead_letter = dead_letter_of(one, 1)
        assert (dead_letter["x-attempts"], dead_letter["x-error-type"]) == (b"3", b"ProcessDied"), variables
        starts = one.journal.starts()
        assert starts.pop((0, 0)) <= 2, variables
        assert starts == {(0, 1): 3, (0, 2): 1, (0, 3): 1}, variables


def an_attempt_that_runs_out_of_memory_fails(site: Callable[..., Site]) -> None:
    one = site(partitions=1, WORKER_HANDLER="batches:crash")
    one.submit(task(n, payload, partition=0) for n, payload in enumerate(["go", '{"do": "devour"}', "go"]))
    one.start()
    one.finish()
    assert [one.answer_to(sent).outcome for sent in one.sent] == ["OK", "DEAD_LETTERED", "OK"]
    assert one.journal.starts()[0, 1] == 3
    dead_letter = dead_letter_of(one, 1)
    assert dead_letter["x-attempts"] == b"3"
    assert dead_letter["x-error-type"] in {b"MemoryError", b"ProcessDied"}


def drains_do_not_count_as_attempts(site: Callable[..., Site]) -> None:
    """Four replicas cancel the task in turn, with a limit of three attempts. The fifth completes attempt 1."""
    one = site(partitions=1, WORKER_DRAIN_TIMEOUT="500ms")
    one.submit([task(1, '{"do": "heed", "seconds": 100}', partition=0)])
    for number in range(1, 5):
        replica = one.start()
        until(lambda n=number: one.journal.starts()[0, 0] == n, one.tails)  # type: ignore[misc]
        assert replica.stop() == 6, replica.tail()
    one.start_in_a_hurry()
    one.finish()
    assert {entry.attempt for entry in one.journal.entries("start")} == {1}
    assert one.answer_to(one.sent[0]).response.attempt == 1


def revokes_do_not_count_as_attempts(site: Callable[..., Site]) -> None:
    """Two tasks are cancelled each time another replica joins or leaves."""
    one = site(partitions=2, KAFKA_GROUP_PROTOCOL="consumer", WORKER_REVOKE_HOLD="500ms", WORKER_DRAIN_TIMEOUT="500ms")
    one.start().wait_ready()
    one.submit(task(n, '{"do": "heed", "seconds": 100}', partition=n) for n in (0, 1))
    one.wait_running(1)
    for _ in range(3):
        guest = one.start()
        wait_shared(one, 2)
        one.wait_running(2)
        assert guest.stop() == 6, guest.tail()
        wait_shared(one, 1)
    one.start_in_a_hurry()
    wait_shared(one, 2)
    one.replicas[0].stop()
    one.finish()
    assert len(one.journal.entries("start")) > 4
    assert {entry.attempt for entry in one.journal.entries("start")} == {1}
    assert {one.answer_to(sent).response.attempt for sent in one.sent} == {1}


SCENARIOS = [
    a_request_that_kills_its_process_is_given_up,
    an_attempt_that_runs_out_of_memory_fails,
    drains_do_not_count_as_attempts,
    revokes_do_not_count_as_attempts,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_attempts(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
