"""Fixtures that start an executor. Its handlers are in ``handlers``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.isolation.rig import Rig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from worker.isolation.policy import Policy


@pytest.fixture
def make(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Rig]]:
    """Yield a function that starts an executor. The executors stop when the test ends."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent / "handlers"))
    made: list[Rig] = []

    def start(policy: Policy | None = None, handler: str = "faulty:handle") -> Rig:
        made.append(Rig(policy, handler))
        return made[-1]

    yield start
    for rig in made:
        rig.executor.stop()


@pytest.fixture
def rig(make: Callable[..., Rig]) -> Rig:
    """Return an executor without limits."""
    return make()
