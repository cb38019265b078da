"""The status block of a worker process that has failed."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from worker.errors import ExitCode, WorkerError
from worker.process import main
from worker.process.status_block import SIZE, StatusBlock

if TYPE_CHECKING:
    from worker.process.config import ProcessConfig

MEMBERSHIP = {"protocol": "consumer", "member": "m-1"}
CONFIG: ProcessConfig = SimpleNamespace(group="workers")  # type: ignore[assignment]


def failing(error: Exception) -> Any:
    def run() -> ExitCode:
        raise error

    return SimpleNamespace(run=run, membership=MEMBERSHIP)


@pytest.mark.parametrize("error", [WorkerError("the store is gone"), RuntimeError("a defect")])
def test_a_failed_process_names_its_membership(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    """The supervisor removes that member, so its partitions do not wait for the session time-out."""
    monkeypatch.setattr(main, "_build", lambda *_: failing(error))
    monkeypatch.setattr(main, "_tune_garbage_collection", lambda: None)
    monkeypatch.setattr(main, "signal", SimpleNamespace(signal=lambda *_: None, SIGTERM=15))
    status = StatusBlock(bytearray(SIZE))

    code = main._work(CONFIG, status)

    assert code != ExitCode.DRAINED
    snapshot = status.read()
    assert snapshot is not None
    assert {name: snapshot[name] for name in MEMBERSHIP} == MEMBERSHIP
    assert str(error) in snapshot["failure"]["message"]
