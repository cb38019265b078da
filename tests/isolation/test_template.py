"""The template process: handlers that it can fork, handlers that it cannot fork, and handlers that do not load."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import config, names
from worker.errors import HandlerError
from worker.isolation import children, parent
from worker.isolation.parent import Template, TemplateDiedError
from worker.isolation.template import FORK, FRESH

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.isolation.rig import Rig

pytestmark = pytest.mark.timeout(60)


def test_a_handler_that_cannot_be_loaded_raises_a_handler_error(make: Callable[..., Rig]) -> None:
    """The user gets one line, as from the worker process."""
    with pytest.raises(HandlerError, match="importing nowhere failed: ModuleNotFoundError"):
        make(handler="nowhere:handle")
    with pytest.raises(HandlerError, match="faulty has no 'other'"):
        make(handler="faulty:other")


def test_an_import_that_kills_the_template_is_reported_with_its_signal(make: Callable[..., Rig]) -> None:
    with pytest.raises(TemplateDiedError, match="SIGABRT"):
        make(handler="deadly:handle")


def test_an_import_that_exits_raises_a_handler_error(make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike a crash, an exit happens each time."""
    monkeypatch.setenv("DEADLY", "exit")
    with pytest.raises(HandlerError, match=r"WORKER_HANDLER=deadly:handle: .* exit code 9"):
        make(handler="deadly:handle")


def test_a_set_up_hook_that_fails_raises_a_handler_error(make: Callable[..., Rig]) -> None:
    """It is reported like a handler that cannot be loaded, after the first child has tried."""
    rig = make(handler="unready:handle")
    with pytest.raises(HandlerError, match=r"worker_process_init\(\) failed: FileNotFoundError: model.bin"):
        rig.run("x")


def test_the_executor_gives_up_if_the_set_up_hook_kills_five_children(
    make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor decides what happens next."""
    monkeypatch.setenv("UNREADY", "crash")
    rig = make(handler="unready:handle")
    with pytest.raises(TemplateDiedError, match="5 child processes in a row"):
        rig.run("x")


def test_hooks_run_once_in_every_child(
    make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The set-up hook runs before any task, the shutdown hook when a child ends without a crash."""
    monkeypatch.setenv("TORN_DOWN", str(tmp_path / "torn"))
    rig = make()
    first, again = rig.run("hooks", "hooks")
    assert first.result == again.result == f"init {rig.link.child.pid}".encode()
    rig.run("segfault")
    assert not (tmp_path / "torn").exists()
    (other,) = rig.run("hooks")
    assert other.result == f"init {rig.link.child.pid}".encode()
    assert other.result != first.result
    rig.executor.stop()
    assert (tmp_path / "torn").read_text() == other.result.decode().split()[1]


def test_children_are_fresh_interpreters_if_the_import_cannot_be_forked(
    make: Callable[..., Rig], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """One line of the log names the thread and the socket that prevent a fork."""
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(children.log, "warning", lambda event, **fields: lines.append({"event": event, **fields}))
    rig = make(handler="threaded:handle")
    assert rig.executor._children.template.mode == FRESH
    (line,) = lines
    assert line["event"] == "isolation.cannot_fork"
    assert any("thread" in found for found in line["found"])  # type: ignore[attr-defined]
    assert any("socket" in found for found in line["found"])  # type: ignore[attr-defined]
    before, crash, behind = rig.run("x", "crash", "x")
    assert names([before, crash, behind]) == ["OK", "FAILED ProcessDied", "OK"]
    assert before.result != behind.result
    del capfd


def test_a_template_that_is_killed_is_replaced(rig: Rig) -> None:
    """No task runs at that time. A child of the next template runs the next tasks."""
    rig.run("ok")
    template = rig.executor._children.template.pid
    first = rig.link
    os.kill(template, signal.SIGKILL)
    while rig.link is first:
        time.sleep(0.01)
    assert names(rig.run("ok", "ok")) == ["OK", "OK"]
    assert rig.executor._children.template.pid != template


def test_a_template_that_is_stopped_is_replaced(make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "REPLY_SECONDS", 0.5)
    rig = make()
    rig.run("ok")
    os.kill(rig.executor._children.template.pid, signal.SIGSTOP)
    assert names(rig.run("segfault", "ok")) == ["FAILED ProcessDied", "OK"]


def test_children_draw_different_random_numbers(rig: Rig) -> None:
    first, _, second = rig.run("draw", "segfault", "draw")
    assert first.result != second.result


def test_the_template_forks_children_of_a_plain_handler(
    monkeypatch: pytest.MonkeyPatch, make: Callable[..., Rig]
) -> None:
    rig = make()
    assert rig.executor._children.template.mode == FORK
    began = time.monotonic()
    child = rig.executor._children.template.fork(rig.mailbox.wakeup)
    assert time.monotonic() - began < 1.0
    child.kill()
    assert rig.executor._children.template.end_of(child).status == -signal.SIGKILL
    child.close()
    del monkeypatch


def test_a_template_whose_handler_does_not_load_raises_a_handler_error() -> None:
    """No executor is involved."""
    with pytest.raises(HandlerError):
        Template(config("nowhere:handle"))
