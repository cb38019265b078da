"""A kernel that refuses processes or access for a while."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import config, names
from worker.core.model import Verdict
from worker.errors import ExitCode
from worker.isolation.parent import RefusedProcessError, Template
from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isolation.rig import Rig
    from worker.core.model import Task

pytestmark = pytest.mark.timeout(60)
HANDLER = "refusing:handle"


@pytest.fixture(autouse=True)
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that makes the kernel refuse processes."""
    monkeypatch.setenv("REFUSING", str(tmp_path / "refusing"))
    return tmp_path / "refusing"


def test_without_another_child_the_process_ends_and_is_replaced_later(make: Callable[..., Rig], refusing: Path) -> None:
    """Its partitions go to processes that can run tasks."""
    rig = make(handler=HANDLER)
    refusing.touch()
    with pytest.raises(RefusedProcessError, match="Resource temporarily unavailable") as raised:
        rig.run("crash", "x")
    assert raised.value.exit_code is ExitCode.UNSTARTABLE


def test_a_long_task_survives_that_no_child_can_be_started_beside_it(make: Callable[..., Rig], refusing: Path) -> None:
    """The executor's thread waits meanwhile, and the task behind runs as soon as there is a child."""
    rig, long = beside_a_long_task(make, refusing)
    (behind,) = rig.submit("x")
    began = time.process_time()
    rig.take_none(1.5)
    assert time.process_time() - began < 0.7
    refusing.unlink()
    assert [one.task for one in rig.take(2)] == [behind, long]


def test_a_drain_gives_up_tasks_that_no_child_can_start(make: Callable[..., Rig], refusing: Path) -> None:
    """Otherwise it would wait until the kernel has room again."""
    rig, long = beside_a_long_task(make, refusing)
    (behind,) = rig.submit("x")
    rig.executor.closed = True
    outcomes = rig.take(2)
    assert [one.task for one in outcomes] == [behind, long]
    assert [one.verdict for one in outcomes] == [Verdict.NOT_STARTED, Verdict.OK]


def beside_a_long_task(make: Callable[..., Rig], refusing: Path) -> tuple[Rig, Task]:
    """Return an executor that runs a task of some seconds, and starts no child beside it."""
    rig = make(Policy(extra_slots=1, long_after=0.3), handler=HANDLER)
    (long,) = rig.submit("sleep 5")
    rig.wait_running(long)
    refusing.touch()
    while not rig.executor.beside:
        rig.executor.check()
    return rig, long


def test_a_template_that_may_not_fork_is_no_fault_of_the_handler(make: Callable[..., Rig], refusing: Path) -> None:
    """Otherwise the replica would stop and say that the handler cannot be loaded."""
    refusing.touch()
    with pytest.raises(RefusedProcessError, match="Resource temporarily unavailable"):
        make(handler=HANDLER)


def test_a_template_that_cannot_be_started_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", refuse)
    with pytest.raises(RefusedProcessError, match="could not be started"):
        Template(config(HANDLER))


def test_an_orphan_of_another_user_does_not_end_the_template(make: Callable[..., Rig]) -> None:
    rig = make(handler=HANDLER)
    template = rig.executor._children.template.pid
    assert names(rig.run("orphan")) == ["FAILED ProcessDied"]
    assert names(rig.run("x")) == ["OK"]
    assert rig.executor._children.template.pid == template


def test_a_handler_may_ignore_the_ends_of_children(make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """The template still learns how its children end. In its own process the handler gets what it has set."""
    monkeypatch.setenv("IGNORING", "1")
    rig = make(handler=HANDLER)
    outcomes = rig.run("x", "crash", "ignoring")
    assert names(outcomes) == ["OK", "FAILED ProcessDied", "OK"]
    assert outcomes[-1].result == b"True"
