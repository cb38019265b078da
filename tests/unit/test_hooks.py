"""The hooks of a handler's module, which run once per process."""

from __future__ import annotations

import sys
import types
from typing import TYPE_CHECKING

import pytest
from structlog.testing import capture_logs

from worker.errors import HandlerError
from worker.handlers import hooks

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    made = types.ModuleType("with_hooks")
    monkeypatch.setitem(sys.modules, "with_hooks", made)
    return made


def test_a_module_needs_no_hooks(module: types.ModuleType) -> None:
    del module
    hooks.set_up("with_hooks:handle")
    hooks.tear_down("with_hooks:handle")


def test_both_hooks_are_called(module: types.ModuleType) -> None:
    calls: list[str] = []
    vars(module)["worker_process_init"] = lambda: calls.append("init")
    vars(module)["worker_process_shutdown"] = lambda: calls.append("shutdown")
    hooks.set_up("with_hooks:handle")
    hooks.tear_down("with_hooks:handle")
    assert calls == ["init", "shutdown"]


def test_the_error_of_a_failed_set_up_names_the_hook_and_the_cause(module: types.ModuleType) -> None:
    def fail() -> None:
        raise OSError("no disk")

    vars(module)["worker_process_init"] = fail
    with pytest.raises(HandlerError, match=r"with_hooks:handle: worker_process_init\(\) failed: OSError"):
        hooks.set_up("with_hooks:handle")


@pytest.mark.parametrize("shutdown", [lambda: 1 / 0, lambda: sys.exit(3)])
def test_a_tear_down_that_fails_is_logged(module: types.ModuleType, shutdown: Callable[[], object]) -> None:
    """The process ends anyway, with its own exit code."""
    vars(module)["worker_process_shutdown"] = shutdown
    with capture_logs() as lines:
        hooks.tear_down("with_hooks:handle")
    assert [line["event"] for line in lines] == ["handler.shutdown_failed"]
