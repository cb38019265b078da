"""Joining again under the name of a static member that the broker still knows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING

import structlog

from tests.unit.support import Watch
from worker.kafka import join_errors
from worker.kafka.join_errors import RejoinPause

if TYPE_CHECKING:
    import pytest


def test_the_log_says_once_a_minute_that_the_name_is_in_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """The member tries to join every second while the session of the previous process lasts."""
    watch, pause = Watch(), RejoinPause()
    monkeypatch.setattr(join_errors, "time", SimpleNamespace(monotonic=watch.time, sleep=watch.sleep))
    begun = watch.time()
    with structlog.testing.capture_logs() as lines:
        for _ in range(150):
            pause.wait()
    assert watch.time() - begun == 150
    assert [line["event"] for line in lines] == ["group_instance_id.in_use"] * 3
