"""A task of many steps resumes from its last checkpoint, however its replica ends."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import random
import signal
from typing import TYPE_CHECKING

import pytest

from chaos import groups
from tests.kafka.support.states import States
from tests.kafka.support.topics import task
from tests.kafka.support.waiting import until
from tests.long_form import LONG
from worker.state.records import encode_state, state_key
from worker.state.table import StateTable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tests.kafka.support.site import Site
    from worker.core.task_state import TaskState

pytestmark = [pytest.mark.kafka, pytest.mark.slow, pytest.mark.timeout(900 if LONG else 240)]

STEPS, PAUSE, KILLS = (200, 0.05, 20) if LONG else (60, 0.3, 2)
REDONE = 2 if LONG else 10  # steps for each kill; the short form runs beside other tests, on a busy machine


def steps_of(file: Path) -> list[int]:
    return [step for _, step in lines_of(file)]


def begun(file: Path) -> list[int]:
    """Return the first step of each start, in order."""
    return list(dict(reversed(lines_of(file))).values())[::-1]


def lines_of(file: Path) -> list[tuple[str, int]]:
    """Return process and step of each line, in order."""
    lines = file.read_text().splitlines() if file.exists() else []
    return [(process, int(step)) for process, step in map(str.split, lines)]


def exactly_once(site: Callable[..., Site], isolation: str, **variables: str) -> tuple[Site, States]:
    """Return a site with a handler that checkpoints each step and a session of 6 s, and the site's state topic."""
    one = site(
        partitions=1,
        WORKER_HANDLER="steps:handle",
        WORKER_HANDLER_KWARGS="{}",
        WORKER_GUARANTEE="exactly-once",
        WORKER_ISOLATION=isolation,
        KAFKA_GROUP_PROTOCOL="consumer",
        **variables,
    )
    groups.configure(one.bootstrap, one.group, {"consumer.session.timeout.ms": "6000"})
    return one, States(one.bootstrap)


@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_a_task_resumes_from_its_last_checkpoint_after_kills(
    site: Callable[..., Site], tmp_path: Path, isolation: str
) -> None:
    """The replica gets SIGKILL at random steps. The next replica resumes from the last checkpoint on the topic.

    No attempt is used up, and there is one answer.
    """
    one, states = exactly_once(site, isolation, WORKER_MAX_ATTEMPTS="2")
    file = tmp_path / "steps"
    one.submit([task(1, json.dumps({"file": str(file), "steps": STEPS, "pause": PAUSE}))])
    one.start(KAFKA_STATE_TOPIC=states.topic)
    confirmed = [0]
    for at in sorted(random.sample(range(5, STEPS - STEPS // 10), KILLS)):
        until(lambda at=at: len(begun(file)) == len(confirmed) and max(steps_of(file)) >= at, one.tails)  # type: ignore[misc]
        until(lambda: states.table.states, one.tails)
        (state,) = states.table.states.values()
        confirmed.append(int(state.checkpoint))
        one.replicas[-1].process.kill()
        one.replicas[-1].process.wait()
        one.start(KAFKA_STATE_TOPIC=states.topic)
    one.finish()
    done = steps_of(file)
    assert set(done) == set(range(STEPS))
    assert all(first >= there for first, there in zip(begun(file), confirmed, strict=True)), (done, confirmed)
    print(f"{isolation}: {len(done) - STEPS} steps redone over {KILLS} kills")  # noqa: T201 - measured
    assert len(done) - STEPS <= REDONE * KILLS, done
    (answer,) = one.answers.records
    assert answer.outcome == "OK"
    assert answer.response.attempt == 1
    until(lambda: not states.table.states, lambda: f"{states.table.states}")


def test_a_task_resumes_from_its_checkpoint_after_a_drain(site: Callable[..., Site], tmp_path: Path) -> None:
    """The cancelled task repeats only steps after its last checkpoint."""
    one = site(partitions=1, WORKER_HANDLER="steps:handle", WORKER_HANDLER_KWARGS="{}", WORKER_CANCEL_GRACE="1s")
    states = States(one.bootstrap)
    file = tmp_path / "steps"
    one.submit([task(1, json.dumps({"file": str(file), "steps": 60, "pause": PAUSE}))])
    isolated = {"KAFKA_STATE_TOPIC": states.topic, "WORKER_ISOLATION": "process", "WORKER_DRAIN_TIMEOUT": "100ms"}
    one.start(**isolated)
    until(lambda: len(steps_of(file)) > 10, one.tails)
    assert one.replicas[0].stop() == 6
    one.start(**isolated)
    one.finish()
    done = steps_of(file)
    assert set(done) == set(range(60))
    assert len(done) - 60 <= REDONE, done


@pytest.mark.skipif(not LONG, reason="long form: tests/process_fake/test_long_tasks.py has it on a fake broker")
@pytest.mark.parametrize("isolation", ["thread", "process"])
def test_late_checkpoints_of_a_frozen_owner_are_refused(
    site: Callable[..., Site], tmp_path: Path, isolation: str
) -> None:
    """The owner continues when a second replica is further in the task. A third one resumes where the second was."""
    one, states = exactly_once(site, isolation)
    file = tmp_path / "steps"
    one.submit([task(1, json.dumps({"file": str(file), "steps": 150, "pause": 0.1}))])
    frozen = one.start(KAFKA_STATE_TOPIC=states.topic)
    until(lambda: checkpoint_in(states) >= 5, one.tails)
    family = [frozen.process.pid, *frozen.descendants()]
    signal_all(family, signal.SIGSTOP)  # the supervisor first: it would notice a frozen worker process
    left, old = len(steps_of(file)), state_in(states)
    heir = one.start(KAFKA_STATE_TOPIC=states.topic)
    until(lambda: checkpoint_in(states) >= left + 20, one.tails)
    signal_all(reversed(family), signal.SIGCONT)
    until(lambda: late_steps(file) >= 2, one.tails)
    late = dataclasses.replace(old, checkpoint=b"%d" % (left + 1))  # the client may have had this record in its queue
    states.write(late)
    until(lambda: late in states.written(), one.tails)
    before = checkpoint_in(states)
    taken = checkpoints(states)
    assert taken == sorted(taken), "a late checkpoint was taken"
    for replica in (frozen, heir):
        replica.process.kill()
        replica.process.wait()
    one.start(KAFKA_STATE_TOPIC=states.topic)
    one.finish()
    assert begun(file)[-1] >= before, (begun(file), before)
    assert set(steps_of(file)) == set(range(150))


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)


def state_in(states: States) -> TaskState:
    """Return the state of the only task on the topic."""
    (state,) = states.table.states.values()
    return state


def checkpoint_in(states: States) -> int:
    """Return the checkpoint of the task on the topic, or 0 before the first one."""
    return max((int(state.checkpoint or b"0") for state in states.table.states.values()), default=0)


def checkpoints(states: States) -> list[int]:
    """Return the checkpoint of the task after each record of the topic."""
    table, found = StateTable(), []
    for state in states.written():
        table.apply(state_key(state.origin), encode_state(state))
        found += [int(one.checkpoint or b"0") for one in table.states.values()]
    return found


def late_steps(file: Path) -> int:
    """Return how many steps the first process has made since the second one began."""
    processes = [process for process, _ in lines_of(file)]
    second = next(at for at, process in enumerate(processes) if process != processes[0])
    return processes[second:].count(processes[0])
