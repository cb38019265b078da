"""A kernel that refuses processes or access for a while."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import config, names
from worker.isolation.parent import RefusedProcessError, Template
from worker.isolation.policy import Policy

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)
HANDLER = "refusing:handle"


@pytest.fixture(autouse=True)
def refusing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file that makes the kernel refuse processes."""
    monkeypatch.setenv("REFUSING", str(tmp_path / "refusing"))
    return tmp_path / "refusing"


def test_a_refused_child_is_started_later_and_the_template_lives(make: Callable[..., Rig], refusing: Path) -> None:
    rig = make(handler=HANDLER)
    template = rig.executor._children.template.pid
    refusing.touch()
    assert names(rig.run("crash")) == ["FAILED ProcessDied"]
    rig.submit("x")
    time.sleep(1.5)
    assert rig.executor.running is None
    refusing.unlink()
    assert names(rig.take(1)) == ["OK"]
    assert rig.executor._children.template.pid == template


def test_a_long_task_survives_that_no_child_can_be_started_beside_it(make: Callable[..., Rig], refusing: Path) -> None:
    rig = make(Policy(extra_slots=1, long_after=0.3), handler=HANDLER)
    (long,) = rig.submit("sleep 3")
    rig.wait_running(long)
    refusing.touch()
    rig.submit("x")
    outcomes = rig.take(1)
    assert (names(outcomes), outcomes[0].task) == (["OK"], long)
    refusing.unlink()
    assert names(rig.take(1)) == ["OK"]


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
    """The template still learns how its children end."""
    monkeypatch.setenv("IGNORING", "1")
    rig = make(handler=HANDLER)
    assert names(rig.run("x", "crash", "x")) == ["OK", "FAILED ProcessDied", "OK"]
