"""The conditions under which a run is done."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from chaos import watch
from chaos.watch import NO_PROGRESS_SECONDS, SETTLE_SECONDS, NoProgressError, Progress

SESSION = 45.0
SENT = [(6, offset) for offset in range(30)]


class Scripted(Progress):
    """A progress with a clock of the test. ``committed`` and ``answered`` are the seconds until all requests are so."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, committed: float, answered: float) -> None:
        replicas = SimpleNamespace(cluster=SimpleNamespace(bootstrap=""), options=SimpleNamespace(session=SESSION))
        self.reader = SimpleNamespace(answered=set())
        super().__init__(cast("Any", replicas), cast("Any", self.reader), "requests")
        self.clock, self.done_at, self.answered_at = 0.0, committed, answered
        monkeypatch.setattr(watch, "time", SimpleNamespace(monotonic=lambda: self.clock))
        monkeypatch.setattr(watch, "asyncio", SimpleNamespace(sleep=self._sleep))

    async def _sleep(self, seconds: float) -> None:
        self.clock += seconds

    async def update(self) -> None:
        self.ends = {6: 30}
        self.committed = {6: 30 if self.clock >= self.done_at else 22}
        if self.clock >= self.answered_at:
            self.reader.answered.update(SENT)

    async def _owners(self) -> str:
        return "nobody"


def test_a_run_is_done_when_all_is_committed_and_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    progress = Scripted(monkeypatch, committed=20.0, answered=30.0)
    asyncio.run(progress.wait_done(SENT, all_answered=True))
    assert progress.clock == 30.0


def test_a_run_without_all_answers_is_done_some_time_after_the_last_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is not done at the first check after a long silence. See the suite, seed 219."""
    progress = Scripted(monkeypatch, committed=53.0, answered=1e9)
    asyncio.run(progress.wait_done(SENT, all_answered=False))
    assert progress.clock == pytest.approx(53.0 + SESSION + SETTLE_SECONDS, abs=1.0)


@pytest.mark.parametrize("all_answered", [True, False])
def test_a_run_without_progress_fails(monkeypatch: pytest.MonkeyPatch, all_answered: bool) -> None:
    progress = Scripted(monkeypatch, committed=1e9, answered=1e9)
    with pytest.raises(NoProgressError, match="no answer and no commit for 75 s: 30 unanswered"):
        asyncio.run(progress.wait_done(SENT, all_answered=all_answered))
    assert progress.clock == pytest.approx(NO_PROGRESS_SECONDS, abs=1.0)
