"""Processes killed in the middle of their work."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from chaos import groups
from tests.kafka.support.replica import alive, kill
from tests.kafka.support.topics import reading, task
from tests.kafka.support.waiting import until
from tests.long_form import LONG

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.kafka.support.site import Site

    Scenario = Callable[..., None]

pytestmark = [pytest.mark.kafka, pytest.mark.timeout(180)]

SOON = 2.0  # seconds that the worker may take
NAP = '{"do": "nap", "seconds": 6}'


def at_work(site: Callable[..., Site], payload: str) -> Site:
    """Return a site with two processes, each in the third of five tasks of its partition. Two are committed."""
    one = site(partitions=2, WORKER_PROCESSES="2", KAFKA_GROUP_PROTOCOL="consumer")
    # Otherwise the partitions of a killed process would move only after 45 s.
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "6000"})
    payloads = ["go", "go", payload, "go", "go"]
    one.submit(task(number, text, partition=part) for number, text in enumerate(payloads) for part in (0, 1))
    one.start().wait_ready()
    one.wait_running(2)
    until(lambda: one.committed() == {0: 2, 1: 2}, lambda: f"{one.committed()}\n{one.tails()}")
    return one


def a_killed_process_costs_one_more_start_of_its_task(site: Callable[..., Site]) -> None:
    """No other task starts again, in this or in the peer process. The next process starts within two seconds."""
    one = at_work(site, NAP)
    (replica,) = one.replicas
    pids, before = replica.pids(), set(replica.descendants())
    victim = one.journal.running()[0, 2]
    killed_at = time.monotonic()
    kill([victim])
    until(lambda: set(replica.descendants()) - before, lambda: f"no new process\n{replica.tail()}")
    assert time.monotonic() - killed_at < SOON
    one.finish()
    assert one.journal.starts() == Counter({(sent.partition, sent.offset): 1 for sent in one.sent}) + Counter([(0, 2)])
    assert len({entry.pid for entry in one.journal.entries()}) <= len(pids) + 1


def no_process_outlives_a_killed_supervisor(site: Callable[..., Site]) -> None:
    """A process that a handler has forked ends too. The next replica repeats only the running tasks."""
    one = at_work(site, '{"do": "brood", "seconds": 600}')
    (replica,) = one.replicas
    family = replica.descendants()
    assert len(family) >= 4  # two worker processes, each with a process that its handler has forked
    kill([replica.process.pid])
    until(lambda: not [pid for pid in family if alive(pid)], lambda: f"{family}\n{one.tails()}", SOON)
    replica.process.wait()
    one.start_in_a_hurry()
    one.finish()
    assert one.journal.starts() == (
        Counter({(sent.partition, sent.offset): 1 for sent in one.sent}) + Counter([(0, 2), (1, 2)])
    )


def a_task_that_kills_its_process(site: Callable[..., Site], action: str) -> None:
    """The task is a dead letter after three starts. Its neighbours are answered, and the replica does not give up.

    Each process waits for its partition until the session of the previous one is over.
    """
    one = site(partitions=1, KAFKA_GROUP_PROTOCOL="consumer")
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "20000" if LONG else "6000"})
    before, fatal, behind = one.submit([task(1, "go"), task(2, f'{{"do": "{action}"}}'), task(3, "go")])
    one.start()
    one.wait_answered(seconds=150)
    one.wait_committed()
    assert one.journal.starts()[fatal.partition, fatal.offset] == 3
    answer = one.answer_to(fatal)
    assert (answer.outcome, answer.response.error.type, answer.response.attempt) == ("DEAD_LETTERED", "ProcessDied", 3)
    with reading(one.bootstrap, one.dead, one.answer_partitions) as reader:
        (dead_letter,) = reader.read_all()
    assert dict(dead_letter.headers)["x-attempts"] == b"3"
    assert one.answer_to(behind).outcome == "OK"
    assert one.journal.starts()[behind.partition, behind.offset] == 1
    # The request before may have been answered but not committed when the process died.
    assert {answer.outcome for answer in one.answers.records if answer.origin == before[:3]} == {"OK"}
    one.finish(twice=[before])


def a_task_that_aborts_is_a_dead_letter(site: Callable[..., Site]) -> None:
    a_task_that_kills_its_process(site, "abort")


def a_task_that_crashes_its_process_is_a_dead_letter(site: Callable[..., Site]) -> None:
    a_task_that_kills_its_process(site, "crash")


def a_replica_whose_processes_crash_at_their_start_gives_up(site: Callable[..., Site]) -> None:
    """The replica gives up after five processes in a row. Here the handler dies when it is imported."""
    one = site(partitions=1)
    (one.folder / "deadly.py").write_text("import os\nos.abort()\n")
    replica = one.start(cwd=one.folder, WORKER_HANDLER="deadly:handle", WORKER_HANDLER_KWARGS="{}")
    assert replica.wait_exit(90) == 5, replica.tail()
    (line,) = [line for line in replica.stderr.splitlines() if line.startswith("worker: ")]
    assert "SIGABRT" in line


SCENARIOS = [
    a_killed_process_costs_one_more_start_of_its_task,
    no_process_outlives_a_killed_supervisor,
    a_task_that_aborts_is_a_dead_letter,
    a_task_that_crashes_its_process_is_a_dead_letter,
    a_replica_whose_processes_crash_at_their_start_gives_up,
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_crashes(together: Callable[[Scenario], None], scenario: Scenario) -> None:
    together(scenario)
