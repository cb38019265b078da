"""The template process: what it imports, what it cannot fork, and what it tells of a handler that does not load."""

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


def test_a_handler_that_cannot_be_loaded(make: Callable[..., Rig]) -> None:
    """One line for the user, as in the worker process."""
    with pytest.raises(HandlerError, match="importing nowhere failed: ModuleNotFoundError"):
        make(handler="nowhere:handle")
    with pytest.raises(HandlerError, match="faulty has no 'other'"):
        make(handler="faulty:other")


def test_a_handler_whose_import_kills_its_process(make: Callable[..., Rig]) -> None:
    with pytest.raises(TemplateDiedError, match="SIGABRT"):
        make(handler="deadly:handle")


def test_a_handler_whose_import_ends_its_process(make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """Unlike a crash, this is the same each time."""
    monkeypatch.setenv("DEADLY", "exit")
    with pytest.raises(HandlerError, match=r"WORKER_HANDLER=deadly:handle: .* exit code 9"):
        make(handler="deadly:handle")


def test_a_set_up_that_fails(make: Callable[..., Rig]) -> None:
    """Is told as a handler that cannot be loaded, when the first child has tried."""
    rig = make(handler="unready:handle")
    with pytest.raises(HandlerError, match=r"worker_process_init\(\) failed: FileNotFoundError: model.bin"):
        rig.run("x")


def test_a_set_up_that_kills_its_process(make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch) -> None:
    """A few times, and the executor gives up: the supervisor decides what follows."""
    monkeypatch.setenv("UNREADY", "crash")
    rig = make(handler="unready:handle")
    with pytest.raises(TemplateDiedError, match="5 child processes in a row"):
        rig.run("x")


def test_hooks_run_once_in_every_child(
    make: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The first before any task; the other when a child ends in good order."""
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


def test_an_import_that_cannot_be_forked(
    make: Callable[..., Rig], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every child is a separate interpreter then, and one line says what stood in the way."""
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
    """With nothing running; what is submitted next is run by a child of another."""
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


def test_children_do_not_draw_the_same_numbers(rig: Rig) -> None:
    first, _, second = rig.run("draw", "segfault", "draw")
    assert first.result != second.result


def test_a_template_with_a_plain_handler_is_forked(monkeypatch: pytest.MonkeyPatch, make: Callable[..., Rig]) -> None:
    rig = make()
    assert rig.executor._children.template.mode == FORK
    began = time.monotonic()
    child = rig.executor._children.template.fork(rig.mailbox.wakeup)
    assert time.monotonic() - began < 1.0
    child.kill()
    assert rig.executor._children.template.end_of(child).status == -signal.SIGKILL
    child.close()
    del monkeypatch


def test_a_message_that_is_lost_ends_no_test() -> None:
    """A template whose parent goes away before it has said anything ends quietly."""
    with pytest.raises(HandlerError):
        Template(config("nowhere:handle"))
